"""The best free devices for a container: near the GPUs just given to it, and near one another.

Owns the order of concerns: required devices, nearness to the container's GPUs on the PCI bus, one NUMA node,
devices with fewer replicas taken, and the natural order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from nodeagent.model.allocation import Allocation
from nodeagent.model.devices import HostDevice, PciPlace
from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.rules.devices.group import sort_key
from nodeagent.rules.ids import find_uuid


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
    numa = _choose_numa(devices, chosen, left, size, near)
    taken = {find_uuid(each) for each in chosen}
    while len(chosen) < size:
        best = min(left, key=lambda each: _rank(each, devices, near, numa, avoid, free, taken))
        left.remove(best)
        chosen.append(best)
        taken.add(find_uuid(best))
    return tuple(chosen)


def _rank(
    each: DeviceId,
    devices: Mapping[str, HostDevice],
    near: Mapping[str, int],
    numa: int | None,
    avoid: Collection[DeviceId],
    free: Mapping[str, int],
    taken: Collection[str],
) -> tuple[object, ...]:
    base = find_uuid(each)
    device = devices.get(base)
    return (
        device is None,
        each in avoid,
        base in taken,
        -near.get(base, 0),
        numa is not None and (device is None or device.numa_node != numa),
        -free[base],
        sort_key(device.nodes[0]) if device is not None else (each, -1),
        len(each),
        each,
    )


def _choose_numa(
    devices: Mapping[str, HostDevice],
    chosen: Iterable[DeviceId],
    left: Iterable[DeviceId],
    size: int,
    near: Mapping[str, int],
) -> int | None:
    """The NUMA node to take most devices from, with as few left over as possible."""

    def find(each: DeviceId) -> int | None:
        device = devices.get(find_uuid(each))
        return None if device is None else device.numa_node

    fixed = [node for node in map(find, chosen) if node is not None]
    if fixed:
        return max(sorted(set(fixed)), key=fixed.count)
    rooms: dict[int, int] = {}
    nearness: dict[int, int] = {}
    for each in left:
        node = find(each)
        if node is not None:
            rooms[node] = rooms.get(node, 0) + 1
            nearness[node] = max(nearness.get(node, 0), near.get(find_uuid(each), 0))
    if not rooms:
        return None
    return min(rooms, key=lambda node: (rooms[node] < size, -nearness[node], abs(rooms[node] - size), node))


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
