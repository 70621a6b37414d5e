"""Places all containers of one pod on one node, by the node's own evaluators.

Owns the sum of a pod: init containers are over when the others run, so that of each GPU the larger of the two counts,
and an init container goes to the GPUs of later containers where possible.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuFraction
from nodeagent.model.values import Value
from nodeagent.rules.fractions.demands import ContainerDemand, PodDemand, Stage
from nodeagent.rules.placement.place import Placement, place
from nodeagent.rules.placement.space import Space

Fractions = tuple[GpuFraction, ...]


class PodPlacement(Value, frozen=True):
    """The decided placement of one pod on one node."""

    placements: Mapping[int, Placement]
    """By the container's number; without later containers where one does not fit."""
    parts: Fractions = ()
    """The pod's fractions on the node in all; empty where the pod does not fit."""
    failed: ContainerDemand | None = None
    """The container that does not fit."""

    @property
    def fits(self) -> bool:
        """Whether all containers fit."""
        return self.failed is None


def place_pod(space: Space, demand: PodDemand, requests: Mapping[int, Sequence[GpuUuid]] | None = None) -> PodPlacement:
    """Place every container: running containers in their order, then each init container where possible.

    `requests` are preferred GPUs by the container's number.
    """
    requested = requests or {}
    placements: dict[int, Placement] = {}
    running = space
    for container in demand.containers:
        if container.stage is not Stage.INIT:
            placement = place(running, container.demand, request=requested.get(container.number, ()))
            placements[container.number] = placement
            if not placement.shares:
                return PodPlacement(placements=placements, failed=container)
            running = running.occupy(placement.shares)
    for container in demand.containers:
        if container.stage is Stage.INIT:
            beside = [placements[each.number] for each in demand.containers if _runs_beside(each, container)]
            early = space.occupy(fraction for placement in beside for fraction in placement.shares)
            request = requested.get(container.number) or _find_request(container, placements)
            placement = place(early, container.demand, request=request)
            placements[container.number] = placement
            if not placement.shares:
                return PodPlacement(placements=placements, failed=container)
    fractions = {number: placement.shares for number, placement in placements.items()}
    return PodPlacement(placements=placements, parts=sum_fractions(demand, fractions))


def _runs_beside(other: ContainerDemand, container: ContainerDemand) -> bool:
    """Whether the init container meets the other container."""
    return other.stage is Stage.SIDECAR and other.number < container.number


def _find_request(container: ContainerDemand, placements: Mapping[int, Placement]) -> tuple[GpuUuid, ...]:
    """The GPUs of a container with the same number of GPUs, so that the pod takes no more than necessary."""
    for placement in placements.values():
        if placement.demand.gpus == container.demand.gpus:
            return tuple(fraction.gpu for fraction in placement.shares)
    return ()


def sum_fractions(demand: PodDemand, parts: Mapping[int, Fractions]) -> Fractions:
    """The fractions of the whole pod: all running containers, and of each GPU the excess of an init container."""
    running = [
        fraction
        for each in demand.containers
        if each.stage is not Stage.INIT
        for fraction in parts.get(each.number, ())
    ]
    taken = list(running)
    for container in demand.containers:
        if container.stage is Stage.INIT:
            early = [
                fraction
                for each in demand.containers
                if each is container or _runs_beside(each, container)
                for fraction in parts.get(each.number, ())
            ]
            taken += _list_excess(early, taken)
    return tuple(taken)


def _list_excess(early: Iterable[GpuFraction], taken: Iterable[GpuFraction]) -> list[GpuFraction]:
    """The needs on each GPU beyond the fractions already taken."""
    needed, has = _add(early), _add(taken)
    excess = []
    for gpu, (cores, memory, users) in needed.items():
        cores_had, memory_had, users_had = has.get(gpu, (0, 0, 0))
        more = GpuFraction(gpu=gpu, cores=max(0, cores - cores_had), memory_bytes=max(0, memory - memory_had))
        if more.cores or more.memory_bytes or users > users_had:
            excess.append(more)
    return excess


def _add(parts: Iterable[GpuFraction]) -> Mapping[GpuUuid, tuple[int, int, int]]:
    """Cores, memory and users of each GPU."""
    total: defaultdict[GpuUuid, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for fraction in parts:
        cores, memory, users = total[fraction.gpu]
        total[fraction.gpu] = cores + fraction.cores, memory + fraction.memory_bytes, users + 1
    return total
