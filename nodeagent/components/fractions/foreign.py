"""The use of GPUs in fractions by foreign programs, without a binding; pure.

Such a program belongs to another plugin, a pod bound by hand, or the host. Its memory cannot be promised to a pod.
Refuses to guess: an unseen process, or a process perhaps of a container whose pod is unknown yet, counts for nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.wording import render_bytes

_STEP_BYTES = 256 << 20
"""Smaller changes are not worth an update for every scheduler."""
_NAME_MOST = 15
"""The characters that the kernel keeps of a process's name."""
_NAMED_MOST: Final = 3
"""How many processes of one GPU are named, the largest first."""


class ForeignProcess(NamedTuple):
    """A process on a GPU without a binding there."""

    gpu: Gpu
    pid: int
    place: ProcessPlace
    memory_bytes: int
    """As far as the driver says."""

    def describe(self, pods: Mapping[str, str]) -> str:
        """Name, owner and use of the process; `pods` are the names of pods by uid."""
        uid = self.place.pod_uid
        owner = f"of pod {pods.get(uid, uid)}" if uid else "of the host"
        name = self.place.name or "a process"
        return f"{name} {owner} (pid {self.pid}) uses {render_bytes(self.memory_bytes)}"


def find_foreign(
    gpus: Iterable[Gpu],
    table: FractionTable,
    sample: NodeSample,
    places: Mapping[int, ProcessPlace],
    ignored: Collection[str],
    before: Iterable[ForeignProcess] = (),
) -> tuple[ForeignProcess, ...]:
    """All foreign processes.

    `ignored` names processes of the host that may use GPUs beside all others; `before`, the last result, stands for
    GPUs whose processes cannot be read now.
    """
    tenants: dict[GpuUuid, set[str]] = {}
    for binding in table.bindings.values():
        for fraction in binding.parts:
            tenants.setdefault(fraction.gpu, set()).add(binding.pod.uid)
    left_alone = {name[:_NAME_MOST] for name in ignored}
    ours = {gpu.uuid: gpu for gpu in gpus}
    found: list[ForeignProcess] = []
    for gpu in sample.gpus:
        known = tenants.get(gpu.uuid, set())
        if gpu.uuid not in ours or "" in known:
            continue
        if _is_unread(gpu):
            seen = {process.pid for process in gpu.processes}
            kept = (one for one in before if one.gpu.uuid == gpu.uuid and one.pid not in seen)
            found += (one for one in kept if one.place.pod_uid not in known)
        for process in gpu.processes:
            place = places.get(process.pid)
            if place is None or place.pod_uid in known or (not place.pod_uid and place.name in left_alone):
                continue
            found.append(ForeignProcess(ours[gpu.uuid], process.pid, place, process.memory_used_bytes or 0))
    return tuple(found)


def list_unread(sample: NodeSample) -> frozenset[GpuUuid]:
    """The GPUs whose processes cannot be read now, as opposed to GPUs without processes."""
    return frozenset(gpu.uuid for gpu in sample.gpus if _is_unread(gpu))


def _is_unread(gpu: GpuSample) -> bool:
    """Whether the processes are unreadable; a GPU lost for good counts as read, as no process uses it any more."""
    return gpu.silent or any(each.what == "processes" for each in gpu.unreadable)


def sum_foreign(found: Iterable[ForeignProcess]) -> dict[GpuUuid, int]:
    """By GPU the bytes of its foreign processes; a GPU with such a process is included even at zero."""
    sums: dict[GpuUuid, int] = {}
    for one in found:
        sums[one.gpu.uuid] = sums.get(one.gpu.uuid, 0) + one.memory_bytes
    return {gpu: -(-used // _STEP_BYTES) * _STEP_BYTES for gpu, used in sums.items()}


def list_unnamed_pods(found: Iterable[ForeignProcess], pods: Mapping[str, str]) -> frozenset[str]:
    """The uids of pods to be named to people, without a known name."""
    return frozenset(one.place.pod_uid for one in found if one.memory_bytes and one.place.pod_uid) - pods.keys()


def describe_foreign(found: Iterable[ForeignProcess], pods: Mapping[str, str]) -> dict[str, str]:
    """By GPU the processes with memory taken from others, as people read the list.

    A process without memory takes nothing from others: agents for monitoring hold GPUs open so.
    """
    by_gpu: dict[GpuUuid, list[ForeignProcess]] = {}
    for one in sorted(found, key=lambda one: (-one.memory_bytes, one.pid)):
        if one.memory_bytes:
            by_gpu.setdefault(one.gpu.uuid, []).append(one)
    return {str(gpu): _describe_gpu(processes, pods) for gpu, processes in by_gpu.items()}


def _describe_gpu(processes: Sequence[ForeignProcess], pods: Mapping[str, str]) -> str:
    told = "; ".join(one.describe(pods) for one in processes[:_NAMED_MOST])
    left = len(processes) - _NAMED_MOST
    return f"GPU {processes[0].gpu.index}: {told}" + (f"; and {left} more" if left > 0 else "")
