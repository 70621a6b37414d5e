"""The best free devices for a container: near the GPUs just given to it, and near one another.

Owns the order of concerns: required devices, nearness to the container's GPUs on the PCI bus, one NUMA node,
partitions of one GPU, devices with fewer replicas taken, and the natural order.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from nodeagent.model.allocation import Allocation
from nodeagent.model.devices import HostDevice, PciPlace
from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.rules.devices.group import sort_key
from nodeagent.rules.ids import find_uuid

P = TypeVar("P", int, PciAddress)


def prefer_devices(
    devices: Mapping[str, HostDevice],
    available: Sequence[DeviceId],
    must_include: Sequence[DeviceId],
    size: int,
    *,
    near: Mapping[str, int],
    avoid: Collection[DeviceId] = (),
) -> tuple[DeviceId, ...]:
    """The devices for a container; odd questions get the best valid answer.

    `devices` go by id without replica. `near` has how near each is to the container's present devices, more being
    nearer; `avoid` are devices with a possible holder.
    """
    chosen = list(dict.fromkeys(each for each in must_include if each in available))
    if len(chosen) < len(set(must_include)) or len(chosen) > size or len(set(available)) < size:
        return ()
    left = [each for each in dict.fromkeys(available) if each not in chosen]
    free: dict[str, int] = {}
    for each in left:
        free[find_uuid(each)] = free.get(find_uuid(each), 0) + 1
    partitioned = {device.pci for device in devices.values() if device.is_partition}

    def find_numa(each: DeviceId) -> int | None:
        device = devices.get(find_uuid(each))
        return None if device is None else device.numa_node

    def find_gpu(each: DeviceId) -> PciAddress | None:
        device = devices.get(find_uuid(each))
        return device.pci if device is not None and device.pci in partitioned else None

    numa = _choose_place(find_numa, chosen, left, size, near)
    there = [each for each in left if numa is None or find_numa(each) == numa]
    gpu = _choose_place(find_gpu, chosen, there, size, near)
    taken = {find_uuid(each) for each in chosen}
    while len(chosen) < size:
        best = min(left, key=lambda each: _rank(each, devices, near, (numa, gpu), avoid, free, taken))
        left.remove(best)
        chosen.append(best)
        taken.add(find_uuid(best))
    return tuple(chosen)


def _rank(
    each: DeviceId,
    devices: Mapping[str, HostDevice],
    near: Mapping[str, int],
    places: tuple[int | None, PciAddress | None],
    avoid: Collection[DeviceId],
    free: Mapping[str, int],
    taken: Collection[str],
) -> tuple[object, ...]:
    base = find_uuid(each)
    device = devices.get(base)
    numa, gpu = places
    return (
        device is None,
        each in avoid,
        base in taken,
        -near.get(base, 0),
        numa is not None and (device is None or device.numa_node != numa),
        gpu is not None and (device is None or device.pci != gpu),
        -free[base],
        sort_key(device.nodes[0]) if device is not None else (each, -1),
        len(each),
        each,
    )


def _choose_place(
    find: Callable[[DeviceId], P | None],
    chosen: Iterable[DeviceId],
    left: Iterable[DeviceId],
    size: int,
    near: Mapping[str, int],
) -> P | None:
    """The NUMA node or the GPU to take most devices from, with as few left over as possible."""
    fixed = [place for place in map(find, chosen) if place is not None]
    if fixed:
        return max(sorted(set(fixed)), key=fixed.count)
    rooms: dict[P, int] = {}
    nearness: dict[P, int] = {}
    for each in left:
        place = find(each)
        if place is not None:
            rooms[place] = rooms.get(place, 0) + 1
            nearness[place] = max(nearness.get(place, 0), near.get(find_uuid(each), 0))
    if not rooms:
        return None
    return min(rooms, key=lambda place: (rooms[place] < size, -nearness[place], abs(rooms[place] - size), place))


def score_nearness(
    devices: Iterable[HostDevice],
    gpus: Sequence[tuple[PciAddress, int | None]],
    functions: Mapping[PciAddress, PciPlace],
) -> dict[str, int]:
    """The nearness of each device to the GPUs, given by address and NUMA node: the steps shared on the bus."""
    scores = {}
    for device in devices:
        shared = [_count_shared(device, *gpu, functions) for gpu in gpus]
        scores[str(device.id)] = sum(shared)
    return scores


def _count_shared(
    device: HostDevice, gpu: PciAddress, numa_node: int | None, functions: Mapping[PciAddress, PciPlace]
) -> int:
    is_same_node = device.numa_node is not None and device.numa_node == numa_node
    mine = functions.get(device.pci) if device.pci is not None else None
    theirs = functions.get(gpu)
    if mine is None or theirs is None:
        return int(is_same_node)
    shared = 0
    for one, other in zip(mine.chain, theirs.chain, strict=False):
        if one != other:
            break
        shared += 1
    return 2 * shared + int(is_same_node)


def find_newcomers(
    allocations: Iterable[Allocation], asked: ResourceName, now_seconds: float, within_seconds: float
) -> tuple[DeviceId, ...]:
    """The newest allocations of the container for which a resource is asked now, as far as known.

    The kubelet admits one pod at a time and asks for each resource of a container once: the last unnamed allocations
    are the container's, back to where a resource comes again.
    """
    found: list[DeviceId] = []
    seen = {asked}
    for each in sorted(allocations, key=lambda one: one.number, reverse=True):
        is_fresh = 0 <= now_seconds - each.since_seconds <= within_seconds
        if each.pod is not None or not is_fresh or each.resource in seen:
            break
        seen.add(each.resource)
        found += each.devices
    return tuple(found)


def narrow_gpus(
    available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int, near: Mapping[str, int]
) -> Sequence[DeviceId]:
    """The GPUs nearest to the container's present devices, where there are enough of them.

    `near` is by UUID of the GPU or the MIG device.
    """
    if must_include or not near:
        return available
    best = max((near.get(find_uuid(each), 0) for each in available), default=0)
    nearest = [each for each in available if near.get(find_uuid(each), 0) == best]
    return nearest if best > 0 and len(nearest) >= size else available
