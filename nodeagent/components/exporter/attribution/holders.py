"""Which pods hold which device, from the table of allocations and the claims of dynamic allocation; pure.

Owns the parser for device names of the vendor's DRA driver: `gpu-3` is the GPU with the minor number 3, and
`gpu-3-mig-9-4-2` the GPU's instance from memory slice 4 on, 2 slices wide.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from nodeagent.components.exporter.catalogue.field import Entity
from nodeagent.model.allocation import Allocation, AllocationSource, AllocationTable, ClaimedDevice, ClaimTable
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.nvidia import DRA_DRIVER, LABEL_PREFIX
from nodeagent.model.values import Value
from nodeagent.rules.claims.naming import find_device
from nodeagent.rules.ids import find_uuid

OURS: Final = LABEL_PREFIX
_EARLIER_NAME: Final = re.compile(r"gpu-(\d+)-mig-\d+-(\d+)-(\d+)")


class Claim(Value, frozen=True):
    """The claim by which a container holds a device."""

    name: str
    namespace: str
    driver: str
    pool: str
    device: str


class Holder(Value, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str
    uid: str = ""
    claim: Claim | None = None


_Name = tuple[str, str, str]
Holders = dict[str, tuple[Holder, ...]]
"""By the UUID of what a container is given."""


def find_holders(
    table: AllocationTable,
    extra_resource_names: Iterable[str] = (),
    claims: ClaimTable | None = None,
    gpus: Iterable[Gpu] = (),
) -> Holders:
    """All holders by device; an allocation without a known pod has no holder."""
    extra = frozenset(extra_resource_names)
    found: dict[str, dict[_Name, Holder]] = {}
    for uuid, holder in _list_claimants(claims, tuple(gpus)) if claims is not None else ():
        found.setdefault(uuid, {})[_name(holder)] = holder
    for allocation in sorted(table.allocations, key=lambda one: one.number):
        pod = allocation.pod
        if pod is None or not _counts(allocation, extra):
            continue
        holder = Holder(namespace=pod.namespace, pod=pod.name, container=allocation.container, uid=pod.uid)
        for device in allocation.devices:
            # By name, so that a pod and its successor of the same name are one series: the newer one's.
            found.setdefault(find_uuid(device), {})[_name(holder)] = holder
    return {uuid: tuple(holders[name] for name in sorted(holders)) for uuid, holders in found.items()}


def list_holders(entity: Entity, holders: Holders) -> tuple[Holder, ...]:
    """All holders of the device or of a MIG device of the GPU."""
    if len(entity.uuids) == 1:
        return holders.get(entity.uuids[0], ())
    merged = {_name(holder): holder for uuid in entity.uuids for holder in holders.get(uuid, ())}
    return tuple(merged[name] for name in sorted(merged))


def _list_claimants(claims: ClaimTable, gpus: tuple[Gpu, ...]) -> Iterator[tuple[str, Holder]]:
    for one in claims.devices:
        uuid = _find_claimed(one, gpus)
        if uuid:
            claim = Claim(
                name=one.claim,
                namespace=one.claim_namespace,
                driver=one.driver,
                pool=one.pool,
                device=one.device,
            )
            yield uuid, Holder(namespace=one.pod.namespace, pod=one.pod.name, container=one.container, claim=claim)


def _find_claimed(claimed: ClaimedDevice, gpus: tuple[Gpu, ...]) -> str:
    """The UUID of a claim's device; `None` for other drivers, and for names without a device on the node.

    Earlier versions of the vendor's DRA driver named a MIG device by place and size, without the profile.
    """
    if claimed.driver != DRA_DRIVER:
        return ""
    named = find_device(Inventory(generation=0, gpus=gpus), claimed.device)
    if named is not None:
        return named.gpu.uuid if named.is_gpu else str(named.mig.uuid) if named.mig is not None else ""
    name = _EARLIER_NAME.fullmatch(claimed.device)
    gpu = next((each for each in gpus if name is not None and each.minor == int(name[1])), None)
    if name is None or gpu is None:
        return ""
    place = (int(name[2]), int(name[3]))
    return next((str(one.uuid) for one in gpu.mig_devices if (one.placement_start, one.placement_size) == place), "")


def _counts(allocation: Allocation, extra: frozenset[str]) -> bool:
    # What we allocated ourselves may be called anything; what the kubelet tells of others is known by its name.
    if allocation.source is AllocationSource.JOURNAL:
        return True
    return allocation.resource.startswith(OURS) or allocation.resource in extra


def _name(holder: Holder) -> _Name:
    return holder.namespace, holder.pod, holder.container
