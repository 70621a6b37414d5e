"""Allocations, listings and ledgers for tests, made of as little as a test cares about."""

from collections.abc import Sequence

from nodeagent.components.allocations.ledger import Ledger
from nodeagent.components.allocations.refuse import KubeletRun
from nodeagent.components.allocations.roles.grants import Entry, Granted
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, PodListing

GPU = ResourceName("nvidia.com/gpu")
RUN = KubeletRun(identity="now", since_seconds=-1000.0)
OLD_RUN = KubeletRun(identity="before", since_seconds=-2000.0)


def device_ids(names: str) -> tuple[DeviceId, ...]:
    """`ab` is the devices GPU-a and GPU-b."""
    return tuple(DeviceId(f"GPU-{name}") for name in names)


def pod_named(name: str) -> PodIdentity:
    return PodIdentity(namespace="team", name=name)


def make_entry(
    number: int,
    devices: str,
    *,
    pod: str = "",
    seen_by: str = RUN.identity,
    since_seconds: float = 0.0,
    forgotten: bool = False,
) -> Entry:
    allocation = Allocation(
        number=number,
        resource=GPU,
        devices=device_ids(devices),
        since_seconds=since_seconds,
        pod=pod_named(pod) if pod else None,
        container="main" if pod else "",
        forgotten=forgotten,
    )
    return Entry(allocation=allocation, seen_by=seen_by)


def make_ledger(*entries: Entry) -> Ledger:
    return Ledger(
        entries={entry.allocation.number: entry for entry in entries},
        next_number=max((entry.allocation.number for entry in entries), default=0) + 1,
    )


def granted(number: int, devices: str) -> Granted:
    return Granted(entry=make_entry(number, devices))


def holding(pod: str, devices: str, *, container: str = "main") -> ContainerDevices:
    return ContainerDevices(pod=pod_named(pod), container=container, resource=GPU, devices=device_ids(devices))


def listing(*holders: ContainerDevices, pods: Sequence[str] = ()) -> PodListing:
    """These containers, and these pods beside theirs that hold nothing."""
    names = dict.fromkeys([*(holder.pod for holder in holders), *map(pod_named, pods)])
    return PodListing(pods=tuple(names), containers=holders)
