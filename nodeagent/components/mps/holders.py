"""The holders of a daemon's GPUs, and the pods of a daemon's clients; pure.

Owns the names for messages. Refuses to read states: allocations, fractions and places were read beforehand.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from nodeagent.model.allocation import Allocation
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mps import MpsClient
from nodeagent.model.ports import ProcessPlace
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.mps.daemons import DaemonKind, Wanted
from nodeagent.rules.mps.fractions import list_clients, list_others
from nodeagent.rules.offer.allocation_modes import list_fraction_holders

_NAMED = 4
"""How many names a sentence lists."""


def list_allocations(gpus: Collection[GpuUuid], allocations: Iterable[Allocation]) -> tuple[Allocation, ...]:
    """The allocations of these GPUs, or of replicas of them."""
    return tuple(one for one in allocations if any(find_uuid(device) in gpus for device in one.devices))


def list_held(gpus: Collection[GpuUuid], allocations: Iterable[Allocation], parts: FractionTable) -> dict[int, str]:
    """The holders of these GPUs through a daemon, by journal number."""
    shares = {one.number: name_allocation(one) for one in list_allocations(gpus, allocations)}
    return shares | {one.number: one.describe() for gpu in gpus for one in list_clients(parts, gpu)}


def name_holders(gpus: Collection[GpuUuid], allocations: Iterable[Allocation], parts: FractionTable) -> tuple[str, ...]:
    """All holders of these GPUs, by name."""
    whole = [name_allocation(one) for one in list_allocations(gpus, allocations)]
    of_parts = [one.describe() for gpu in gpus for one in list_fraction_holders(gpu, parts)]
    return tuple(dict.fromkeys((*whole, *of_parts)))


def name_others(wanted: Wanted, allocations: Iterable[Allocation], parts: FractionTable) -> tuple[str, ...]:
    """The holders of a future daemon's GPUs that will not go through the daemon."""
    if wanted.kind is DaemonKind.CLAIM:
        return ()
    if wanted.kind is DaemonKind.SHARES:
        return name_holders(wanted.gpus, allocations, parts)
    whole = [name_allocation(one) for one in list_allocations(wanted.gpus, allocations)]
    return tuple(dict.fromkeys((*whole, *(one.describe() for gpu in wanted.gpus for one in list_others(parts, gpu)))))


def name_allocation(one: Allocation) -> str:
    """`ns/pod (container)`, or the allocation's number where the kubelet has not named the pod."""
    if one.pod is None:
        return f"allocation {one.number}"
    return f"{one.pod.namespace}/{one.pod.name} ({one.container})"


def join_names(names: Sequence[str]) -> str:
    """The first few names, and the number of further names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def name_clients(
    pids: Sequence[int], places: Mapping[int, ProcessPlace], allocations: Iterable[Allocation], parts: FractionTable
) -> tuple[MpsClient, ...]:
    """The clients of a server, each with its pod."""
    pods = [*(one.pod for one in allocations), *(one.pod for one in parts.bindings.values())]
    names = {pod.uid: pod.describe() for pod in pods if pod is not None}
    return tuple(MpsClient(pid=pid, pod=_name(places.get(pid), names)) for pid in pids)


def _name(place: ProcessPlace | None, names: Mapping[str, str]) -> str:
    return "" if place is None else names.get(place.pod_uid, place.pod_uid)
