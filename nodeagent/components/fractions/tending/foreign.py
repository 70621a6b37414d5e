"""What is used of GPUs that are given in parts by programs that were given nothing of them; pure.

Such a program is another plugin's, of a pod that was bound by hand, or of the host. Its memory is nobody's to promise.
Refuses to guess: a process that is not seen, or that may be of a container of which the pod is not known yet, counts
for nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PartTable
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.units import render_bytes

_STEP_BYTES = 256 << 20
"""Small changes are not worth telling every scheduler of."""
_NAME_MOST = 15
"""Characters of its name that the kernel keeps of a process."""
_NAMED_MOST: Final = 3
"""Processes of one GPU that are named, the largest first."""


class ForeignProcess(NamedTuple):
    """A process that uses a GPU of which it was given nothing."""

    gpu: Gpu
    pid: int
    place: ProcessPlace
    memory_bytes: int
    """As far as the driver says."""

    def describe(self, pods: Mapping[str, str]) -> str:
        """Who it is and what it uses; `pods` are the names of pods by uid."""
        uid = self.place.pod_uid
        owner = f"of pod {pods.get(uid, uid)}" if uid else "of the host"
        name = self.place.name or "a process"
        return f"{name} {owner} (pid {self.pid}) uses {render_bytes(self.memory_bytes)}"


def find_foreign(
    gpus: Iterable[Gpu],
    table: PartTable,
    sample: NodeSample,
    places: Mapping[int, ProcessPlace],
    ignored: Collection[str],
    before: Iterable[ForeignProcess] = (),
) -> tuple[ForeignProcess, ...]:
    """All such processes.

    Args:
        gpus: those that are given in parts.
        table: who was given what.
        sample: what runs on them.
        places: whose a process is.
        ignored: names of processes of the host that may use GPUs beside everybody.
        before: what was found last; it still is where a GPU does not tell now who uses it.
    """
    tenants: dict[GpuUuid, set[str]] = {}
    for binding in table.bindings.values():
        for part in binding.parts:
            tenants.setdefault(part.gpu, set()).add(binding.pod.uid)
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
    """The GPUs that do not tell now who uses them, which is not that nobody does."""
    return frozenset(gpu.uuid for gpu in sample.gpus if _is_unread(gpu))


def _is_unread(gpu: GpuSample) -> bool:
    """One that is lost for good is read: nobody uses it any more."""
    return gpu.silent or any(each.what == "processes" for each in gpu.unreadable)


def sum_foreign(found: Iterable[ForeignProcess]) -> dict[GpuUuid, int]:
    """By GPU the bytes that are used so; a GPU is in it as soon as there is such a process."""
    sums: dict[GpuUuid, int] = {}
    for one in found:
        sums[one.gpu.uuid] = sums.get(one.gpu.uuid, 0) + one.memory_bytes
    return {gpu: -(-used // _STEP_BYTES) * _STEP_BYTES for gpu, used in sums.items()}


def list_unnamed_pods(found: Iterable[ForeignProcess], pods: Mapping[str, str]) -> frozenset[str]:
    """The uids of pods that are to be named to people, and of which the name is not known."""
    return frozenset(one.place.pod_uid for one in found if one.memory_bytes and one.place.pod_uid) - pods.keys()


def describe_foreign(found: Iterable[ForeignProcess], pods: Mapping[str, str]) -> dict[str, str]:
    """By GPU the processes that take memory from others, as people read it.

    One that uses none takes nothing from anybody: agents that monitor GPUs hold them open so.
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
