"""Which pods hold which device, from the table of allocations; pure."""

from collections.abc import Iterable
from typing import Final

from nodeagent.components.exporter.field import Entity
from nodeagent.model.allocation import Allocation, AllocationSource, AllocationTable
from nodeagent.model.ids import parse_device_id
from nodeagent.model.values import Value

OURS: Final = "nvidia.com/"


class Holder(Value, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str
    uid: str = ""


_Name = tuple[str, str, str]
Holders = dict[str, tuple[Holder, ...]]
"""By the UUID of what a container is given."""


def find_holders(table: AllocationTable, extra_resource_names: Iterable[str] = ()) -> Holders:
    """All holders by device; allocations whose pod is not known yet name nobody."""
    extra = frozenset(extra_resource_names)
    found: dict[str, dict[_Name, Holder]] = {}
    for allocation in sorted(table.allocations, key=lambda one: one.number):
        pod = allocation.pod
        if pod is None or not _counts(allocation, extra):
            continue
        holder = Holder(namespace=pod.namespace, pod=pod.name, container=allocation.container, uid=pod.uid)
        for device in allocation.devices:
            # By name, so that a pod and its successor of the same name are one series: the newer one's.
            found.setdefault(parse_device_id(device)[0], {})[_name(holder)] = holder
    return {uuid: tuple(holders[name] for name in sorted(holders)) for uuid, holders in found.items()}


def list_holders(entity: Entity, holders: Holders) -> tuple[Holder, ...]:
    """Everyone who holds the device or a part of it."""
    if len(entity.uuids) == 1:
        return holders.get(entity.uuids[0], ())
    merged = {_name(holder): holder for uuid in entity.uuids for holder in holders.get(uuid, ())}
    return tuple(merged[name] for name in sorted(merged))


def _counts(allocation: Allocation, extra: frozenset[str]) -> bool:
    # What we allocated ourselves may be called anything; what the kubelet tells of others is known by its name.
    if allocation.source is AllocationSource.JOURNAL:
        return True
    return allocation.resource.startswith(OURS) or allocation.resource in extra


def _name(holder: Holder) -> _Name:
    return holder.namespace, holder.pod, holder.container
