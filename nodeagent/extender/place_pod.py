"""Where all containers of one pod go on one node, by the evaluators with which the node itself decides.

Owns what a pod takes together: init containers are over when the others run, so that of each GPU the larger of the two
counts, and an init container is sent to the GPUs of those after it where it can be.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuPart
from nodeagent.model.values import Value
from nodeagent.rules.fractions.demands import ContainerDemand, PodDemand, Stage
from nodeagent.rules.placement.place import Placement, place
from nodeagent.rules.placement.space import Space

Parts = tuple[GpuPart, ...]


class PodPlacement(Value, frozen=True):
    """What was decided for one pod on one node."""

    placements: Mapping[int, Placement]
    """By the container's number; as far as it came, where one does not fit."""
    parts: Parts = ()
    """What the pod takes of the node in all; nothing where it does not fit."""
    failed: ContainerDemand | None = None
    """The container that does not fit."""

    @property
    def fits(self) -> bool:
        """Whether all of them fit."""
        return self.failed is None


def place_pod(space: Space, demand: PodDemand, wishes: Mapping[int, Sequence[GpuUuid]] | None = None) -> PodPlacement:
    """Place every container: those that go on running in their order, then each init container where it may be.

    Args:
        space: what is free.
        demand: what the pod asks for.
        wishes: by the container's number the GPUs that it should get if that can be.
    """
    wished = wishes or {}
    placements: dict[int, Placement] = {}
    running = space
    for container in demand.containers:
        if container.stage is not Stage.INIT:
            placement = place(running, container.demand, wish=wished.get(container.number, ()))
            placements[container.number] = placement
            if not placement.shares:
                return PodPlacement(placements=placements, failed=container)
            running = running.occupy(placement.shares)
    for container in demand.containers:
        if container.stage is Stage.INIT:
            beside = [placements[each.number] for each in demand.containers if _runs_beside(each, container)]
            early = space.occupy(part for placement in beside for part in placement.shares)
            wish = wished.get(container.number) or _find_wish(container, placements)
            placement = place(early, container.demand, wish=wish)
            placements[container.number] = placement
            if not placement.shares:
                return PodPlacement(placements=placements, failed=container)
    parts = {number: placement.shares for number, placement in placements.items()}
    return PodPlacement(placements=placements, parts=sum_parts(demand, parts))


def _runs_beside(other: ContainerDemand, container: ContainerDemand) -> bool:
    """Whether an init container meets this one."""
    return other.stage is Stage.SIDECAR and other.number < container.number


def _find_wish(container: ContainerDemand, placements: Mapping[int, Placement]) -> tuple[GpuUuid, ...]:
    """The GPUs of a container of which it needs as many, so that the pod takes no more than it must."""
    for placement in placements.values():
        if placement.demand.gpus == container.demand.gpus:
            return tuple(part.gpu for part in placement.shares)
    return ()


def sum_parts(demand: PodDemand, parts: Mapping[int, Parts]) -> Parts:
    """What the pod takes: all that runs together, and of each GPU what an init container needs beyond that."""
    running = [
        part for each in demand.containers if each.stage is not Stage.INIT for part in parts.get(each.number, ())
    ]
    taken = list(running)
    for container in demand.containers:
        if container.stage is Stage.INIT:
            early = [
                part
                for each in demand.containers
                if each is container or _runs_beside(each, container)
                for part in parts.get(each.number, ())
            ]
            taken += _list_excess(early, taken)
    return tuple(taken)


def _list_excess(early: Iterable[GpuPart], taken: Iterable[GpuPart]) -> list[GpuPart]:
    """What the one needs of each GPU that the other does not take already."""
    needed, has = _add(early), _add(taken)
    excess = []
    for gpu, (cores, memory, users) in needed.items():
        cores_had, memory_had, users_had = has.get(gpu, (0, 0, 0))
        more = GpuPart(gpu=gpu, cores=max(0, cores - cores_had), memory_bytes=max(0, memory - memory_had))
        if more.cores or more.memory_bytes or users > users_had:
            excess.append(more)
    return excess


def _add(parts: Iterable[GpuPart]) -> Mapping[GpuUuid, tuple[int, int, int]]:
    """Cores, memory and users of each GPU."""
    total: defaultdict[GpuUuid, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for part in parts:
        cores, memory, users = total[part.gpu]
        total[part.gpu] = cores + part.cores, memory + part.memory_bytes, users + 1
    return total
