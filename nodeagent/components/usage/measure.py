"""Each container's use of its fractions, from one sample; pure.

Owns the mapping of processes to containers on a shared GPU: by the pod of the control group, and among several
containers of one pod by the container runtime's name of the id. Refuses to guess: use that cannot be divided is
reported of the pod as a whole, and unknown use is not zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import PodContainer
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, FractionTable, GpuFraction
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from nodeagent.model.usage import ContainerUse, FractionUsage, FractionUse, UndividedUse
from nodeagent.rules.placement.space import CORES

Places = Mapping[int, ProcessPlace]
Names = Mapping[str, PodContainer]
"""Containers by their id."""


@dataclass(slots=True)
class _Tally:
    """The sum of some processes' use."""

    processes: list[int] = field(default_factory=list)
    cores: int | None = 0
    memory_bytes: int | None = 0

    def add(self, process: ProcessSample) -> None:
        self.processes.append(process.pid)
        self.cores = _add(self.cores, process.sm_utilization_percent)
        self.memory_bytes = _add(self.memory_bytes, process.memory_used_bytes)

    @property
    def cores_used(self) -> int | None:
        """At most one whole GPU, whatever overlapping windows add up to."""
        return None if self.cores is None else min(CORES, self.cores)


@dataclass(slots=True)
class _Division:
    """The processes of one GPU, divided among the holders of fractions."""

    of_container: dict[int, _Tally]
    """By the number of the binding."""
    of_pod: dict[tuple[int, ...], _Tally]
    """By the numbers of the bindings that the use could not be divided among."""


def list_processes(table: FractionTable, sample: NodeSample) -> tuple[int, ...]:
    """The processes on GPUs with fractions: their containers are worth knowing."""
    shared = table.by_gpu
    return tuple(sorted({each.pid for gpu in sample.gpus if gpu.uuid in shared for each in gpu.processes}))


def list_unnamed(table: FractionTable, sample: NodeSample, places: Places, names: Names) -> frozenset[str]:
    """The ids of containers whose names would identify more than the pod does."""
    tenants = table.by_gpu
    return frozenset(
        place.container_id
        for gpu in sample.gpus
        for process in gpu.processes
        if (place := places.get(process.pid)) is not None
        and place.container_id
        and place.container_id not in names
        and _needs_name(tenants.get(gpu.uuid, ()), place)
    )


def list_unseen(table: FractionTable, sample: NodeSample, places: Places) -> dict[GpuUuid, int]:
    """GPUs with unknown use because none of their processes is visible, with the number of processes."""
    tenants = table.by_gpu
    return {
        gpu.uuid: len(gpu.processes) for gpu in sample.gpus if _is_unseen(gpu, len(tenants.get(gpu.uuid, ())), places)
    }


def measure(
    table: FractionTable, inventory: Inventory | None, sample: NodeSample | None, places: Places, names: Names
) -> FractionUsage:
    """The use of all containers; without a sample, the fractions alone."""
    tenants = table.by_gpu
    found = {gpu.uuid: gpu for gpu in sample.gpus} if sample is not None else {}
    divisions = {gpu: _divide(found.get(gpu), bindings, places, names) for gpu, bindings in tenants.items()}
    indices = {gpu.uuid: gpu.index for gpu in inventory.gpus} if inventory is not None else {}
    containers = tuple(_describe(binding, divisions, indices) for _, binding in sorted(table.bindings.items()))
    undivided = tuple(
        _describe_undivided(gpu, [table.bindings[number] for number in numbers], tally, indices.get(gpu))
        for gpu, division in divisions.items()
        for numbers, tally in division.of_pod.items()
    )
    return FractionUsage(
        time_seconds=sample.time_seconds if sample is not None else 0.0, containers=containers, undivided=undivided
    )


def _needs_name(tenants: Sequence[Binding], place: ProcessPlace) -> bool:
    """Whether the pod alone does not identify the process's container."""
    of_pod = [each for each in tenants if each.pod.uid == place.pod_uid]
    return bool(place.pod_uid) and (len(of_pod) > 1 or any(not each.pod.uid for each in tenants))


def _divide(sample: GpuSample | None, tenants: tuple[Binding, ...], places: Places, names: Names) -> _Division:
    tallies = {binding.number: _Tally() for binding in tenants}
    division = _Division(tallies, {})
    if sample is None or _is_unknown(sample, len(tenants), places):
        for tally in tallies.values():
            tally.cores = tally.memory_bytes = None
        return division
    for process in sample.processes:
        owners = tuple(binding.number for binding in find_owners(process.pid, tenants, places, names))
        if len(owners) == 1:
            tallies[owners[0]].add(process)
        elif owners:
            division.of_pod.setdefault(owners, _Tally()).add(process)
    for numbers in division.of_pod:
        for number in numbers:
            # Any of these bindings may have the process: the use of each is unknown.
            tallies[number].cores = tallies[number].memory_bytes = None
    return division


def _is_unknown(sample: GpuSample, tenants: int, places: Places) -> bool:
    """Whether the users of the GPU cannot be told apart."""
    if sample.lost or sample.silent or any(each.what == "processes" for each in sample.unreadable):
        return True
    return _is_unseen(sample, tenants, places)


def _is_unseen(sample: GpuSample, tenants: int, places: Places) -> bool:
    # A process that has just ended has no place either; where no process has one, the agent cannot see them.
    unseen = bool(sample.processes) and not any(process.pid in places for process in sample.processes)
    return unseen and tenants > 1


def find_owners(pid: int, tenants: tuple[Binding, ...], places: Places, names: Names) -> tuple[Binding, ...]:
    """The owners of a process: one container, none, or several containers of one pod without a distinction."""
    alone = tenants if len(tenants) == 1 else ()
    place = places.get(pid)
    if place is None:
        return alone
    if not place.pod_uid:
        return ()  # a process of the host
    name = names.get(place.container_id)
    of_pod = tuple(each for each in tenants if _is_of_pod(each.pod, place, name))
    if name is not None:
        return tuple(each for each in of_pod if each.container == name.name)[-1:]
    return of_pod or tuple(each for each in alone if not each.pod.uid)


def _is_of_pod(pod: PodIdentity, place: ProcessPlace, name: PodContainer | None) -> bool:
    """By uid where the pod's uid is known, else by the runtime's name of the pod."""
    if pod.uid:
        return pod.uid == place.pod_uid
    return name is not None and (name.namespace, name.pod) == (pod.namespace, pod.name)


def _describe(binding: Binding, divisions: Mapping[GpuUuid, _Division], indices: Mapping[GpuUuid, int]) -> ContainerUse:
    return ContainerUse(
        number=binding.number,
        pod=binding.pod,
        container=binding.container,
        enforcement=binding.enforcement,
        since_seconds=binding.since_seconds,
        why=binding.why,
        parts=tuple(
            _describe_fraction(
                fraction, binding, divisions[fraction.gpu].of_container[binding.number], indices.get(fraction.gpu)
            )
            for fraction in binding.parts
        ),
    )


def _describe_fraction(part: GpuFraction, binding: Binding, tally: _Tally, index: int | None) -> FractionUse:
    return FractionUse(
        gpu=part.gpu,
        index=index,
        cores=part.cores,
        memory_bytes=part.memory_bytes,
        cores_max=binding.core_limit,
        cores_used=tally.cores_used,
        memory_used_bytes=tally.memory_bytes,
        processes=tuple(tally.processes),
    )


def _describe_undivided(gpu: GpuUuid, bindings: Sequence[Binding], tally: _Tally, index: int | None) -> UndividedUse:
    return UndividedUse(
        pod=bindings[0].pod,
        containers=tuple(binding.container for binding in bindings),
        gpu=gpu,
        index=index,
        cores_used=tally.cores_used,
        memory_used_bytes=tally.memory_bytes,
        processes=tuple(tally.processes),
    )


def _add(whole: int | None, more: int | None) -> int | None:
    return None if whole is None or more is None else whole + more


def list_over(usage: FractionUsage) -> dict[str, str]:
    """Containers over the memory of their fraction, under any enforcement; by binding and GPU.

    The driver's count decides: a library in the container may be missing or bypassed.
    """
    return {
        f"{one.number} {fraction.gpu}": (
            f"{one.pod.describe(one.container)} uses {fraction.describe_memory()} of"
            f" {fraction.gpu if fraction.index is None else f'GPU {fraction.index}'}, enforcement {one.enforcement}"
        )
        for one in usage.containers
        for fraction in one.parts
        if fraction.memory_used_bytes is not None and fraction.memory_used_bytes > fraction.memory_bytes
    }
