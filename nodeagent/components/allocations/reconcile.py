"""The kubelet's list against the ledger: names learnt, devices given back, and all differences.

The kubelet names no pod in its requests for devices and never reports devices as free again, so both are read from
its list of pods. The rules, each for a race seen in practice:

- an allocation younger than the question is left alone, for the list may be older than the allocation;
- a device is free only when two lists in a row lack it, some time apart, and the kubelet has run long enough for a
  whole list;
- a pod listed without devices shown by an earlier run of the kubelet has not given the devices back: the new run
  has forgotten, unless the container holds others by now;
- a pod listed without devices shown by the same run is another pod of the same name;
- a device in no list is free at once where the kubelet has told the end of its pod.

Owns these rules.
Refuses to take the kubelet's silence for an answer: without a list nothing changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from nodeagent.components.allocations.ledger import Ledger, Record
from nodeagent.components.allocations.refuse import KubeletRun
from nodeagent.components.allocations.roles.grants import Entry, Forgotten, Freed, Granted, Identified
from nodeagent.model.allocation import Allocation, AllocationSource, PodIdentity
from nodeagent.model.events import AllocationDiffered
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from nodeagent.model.values import Value
from nodeagent.rules.ids import is_ours

_LISTS_NEEDED = 2


class Absence(Value, frozen=True):
    """Since when on the monotonic clock, and how many times in a row, an entry was not in the kubelet's list."""

    since_seconds: float
    lists: int = 1


class PodListPoll(Value, frozen=True):
    """A list of pods and the circumstances of its arrival."""

    listing: PodListing
    run: KubeletRun
    numbers_below: int
    """Entries of this number and above are younger than the question."""
    now_seconds: float
    """Unix time, for the records."""
    monotonic_seconds: float
    """The clock that never jumps, for all durations."""
    free_after_seconds: float
    recovering: bool = False
    """Whether this is the first list since the agent started."""
    living: frozenset[tuple[str, str]] | None = None
    """Namespace and name of each pod that has not ended on this node; `None` where the kubelet does not tell."""
    uids: Mapping[DeviceId, str] = {}
    """The pods' uids by device, as far as the kubelet's checkpoint has them: its list has none."""


class Shown:
    """A list of the kubelet, indexed, so an entry costs the same however many pods there are."""

    def __init__(self, listing: PodListing) -> None:
        self.containers = listing.containers
        self._by_device: dict[DeviceId, list[ContainerDevices]] = {}
        self._named: set[tuple[str, ...]] = set()
        for held in listing.containers:
            for device in dict.fromkeys(held.devices):
                self._by_device.setdefault(device, []).append(held)
            kind = (held.container, held.resource)
            self._named |= {kind, (*kind, held.pod.namespace, held.pod.name)}
        self._pods = {(pod.namespace, pod.name) for pod in listing.pods}

    def find_holders(self, devices: Iterable[DeviceId]) -> list[ContainerDevices]:
        """All containers listed with any of the devices, each once."""
        found = [held for device in devices for held in self._by_device.get(device, ())]
        return list({id(held): held for held in found}.values())

    def has_container(self, allocation: Allocation) -> bool:
        """Whether the allocation's container is listed, with any devices."""
        pod, kind = allocation.pod, (allocation.container, allocation.resource)
        # A pod known by uid alone may be any.
        return pod is not None and (kind if not pod.name else (*kind, pod.namespace, pod.name)) in self._named

    def has_pod(self, pod: PodIdentity) -> bool:
        """Whether an active pod of the same name is on the node."""
        return (pod.namespace, pod.name) in self._pods


class Difference(Value, frozen=True):
    """A disagreement between ledger and kubelet."""

    kind: Literal["missing", "orphan", "conflict", "forgotten"]
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    detail: str

    @property
    def fact(self) -> AllocationDiffered:
        """The difference as a fact, published once."""
        return AllocationDiffered(kind=self.kind, resource=self.resource, devices=self.devices, detail=self.detail)


def describe_differences(differences: Iterable[Difference]) -> dict[str, str]:
    """The differences in words, for as long as they stand."""
    return {f"{each.kind} {','.join(each.devices)}": f"{each.resource}: {each.detail}" for each in differences}


class Reconciliation(Value, frozen=True):
    """The records to write, the absences to remember until the next list, and the differences to publish."""

    records: tuple[Record, ...] = ()
    absences: Mapping[int, Absence] = {}
    differences: tuple[Difference, ...] = ()


def reconcile(ledger: Ledger, look: PodListPoll, absences: Mapping[int, Absence]) -> Reconciliation:
    """Compare the ledger with a list."""
    records: list[Record] = []
    still_absent: dict[int, Absence] = {}
    differences: list[Difference] = []
    listed = Shown(look.listing)
    for number, entry in ledger.entries.items():
        if number >= look.numbers_below:
            continue
        shown = listed.find_holders(entry.devices)
        if shown:
            records.extend(_identify(entry, shown[0], look))
            differences.extend(_find_conflict(entry, shown))
        elif _is_forgotten(entry, look, listed):
            records.extend([] if entry.allocation.forgotten else [Forgotten(number=number)])
            differences.append(_differ("forgotten", entry, "its pod lives, but the kubelet no longer knows of it"))
        else:
            absence = _go_on(absences.get(number), look.monotonic_seconds)
            if look.recovering:
                differences.append(_differ("orphan", entry, "no pod of the kubelet's list holds it"))
            if _is_over(entry, absence, look):
                records.append(Freed(number=number, at_seconds=look.now_seconds, why="given back"))
            else:
                still_absent[number] = absence
    for granted in _adopt(ledger, look):
        records.append(granted)
        differences.append(_differ("missing", granted.entry, "the journal did not have it; taken from the kubelet"))
    return Reconciliation(records=tuple(records), absences=still_absent, differences=tuple(differences))


def adopt_checkpoint(ledger: Ledger, checkpoint: KubeletCheckpoint, now_seconds: float) -> Reconciliation:
    """Adopt the checkpoint's devices missing in the ledger: possibly held is safer than possibly given twice."""
    granted = tuple(
        _grant(number, held, now_seconds, AllocationSource.CHECKPOINT)
        for number, held in enumerate(_unknown(ledger, checkpoint.containers), start=ledger.next_number)
    )
    detail = "the journal did not have it; taken from the kubelet's checkpoint"
    return Reconciliation(
        records=granted, differences=tuple(_differ("missing", each.entry, detail) for each in granted)
    )


def _identify(entry: Entry, held: ContainerDevices, look: PodListPoll) -> Iterator[Identified]:
    known = entry.allocation
    uid = look.uids.get(known.devices[0], "")
    if not uid and known.pod is not None and _same_pod(known.pod, held.pod):
        uid = known.pod.uid
    pod = PodIdentity(namespace=held.pod.namespace, name=held.pod.name, uid=uid)
    if (known.pod, known.container, entry.seen_by, known.forgotten) != (pod, held.container, look.run.identity, False):
        yield Identified(number=known.number, pod=pod, container=held.container, seen_by=look.run.identity)


def _same_pod(known: PodIdentity, listed: PodIdentity) -> bool:
    """Whether two identities are of one pod; a pod known by uid alone counts as the pod listed with its devices."""
    return not known.name or (known.namespace, known.name) == (listed.namespace, listed.name)


def _find_conflict(entry: Entry, shown: list[ContainerDevices]) -> Iterator[Difference]:
    pod = entry.allocation.pod
    if len(shown) > 1:
        names = " and ".join(f"{held.pod.namespace}/{held.pod.name}" for held in shown)
        yield _differ("conflict", entry, f"the kubelet lists it with {names}")
    elif pod is not None and not _same_pod(pod, shown[0].pod):
        now = f"{shown[0].pod.namespace}/{shown[0].pod.name}"
        yield _differ("conflict", entry, f"it was held by {pod.namespace}/{pod.name}, the kubelet lists it with {now}")


def _is_forgotten(entry: Entry, look: PodListPoll, listed: Shown) -> bool:
    pod = entry.allocation.pod
    if pod is None or not entry.seen_by or entry.seen_by == look.run.identity:
        return False
    return not listed.has_container(entry.allocation) and listed.has_pod(pod)


def lacks_uid(ledger: Ledger) -> bool:
    """Whether the kubelet's checkpoint could tell an unknown uid of a pod."""
    return any(entry.allocation.pod is None or not entry.allocation.pod.uid for entry in ledger.entries.values())


def find_uids(checkpoint: KubeletCheckpoint) -> dict[DeviceId, str]:
    """The uid of each device's holder."""
    return {device: held.pod.uid for held in checkpoint.containers for device in held.devices}


def _go_on(absence: Absence | None, monotonic_seconds: float) -> Absence:
    if absence is None:
        return Absence(since_seconds=monotonic_seconds)
    return Absence(since_seconds=absence.since_seconds, lists=absence.lists + 1)


def _is_over(entry: Entry, absence: Absence, look: PodListPoll) -> bool:
    """Whether an absence is long enough; a container never listed gets twice the time, as its pod may still come."""
    pod = entry.allocation.pod
    if look.living is not None and pod is not None and pod.name and (pod.namespace, pod.name) not in look.living:
        return True
    if absence.lists < _LISTS_NEEDED or look.monotonic_seconds - look.run.since_seconds < look.free_after_seconds:
        return False
    patience = look.free_after_seconds * (1 if pod is not None else 2)
    return look.monotonic_seconds - absence.since_seconds >= patience


def _adopt(ledger: Ledger, look: PodListPoll) -> Iterator[Granted]:
    for number, held in enumerate(_unknown(ledger, look.listing.containers), start=ledger.next_number):
        pod = replace(held.pod, uid=look.uids.get(held.devices[0], ""))
        named = replace(held, pod=pod)
        yield _grant(number, named, look.now_seconds, AllocationSource.POD_RESOURCES, look.run.identity)


def _unknown(ledger: Ledger, containers: tuple[ContainerDevices, ...]) -> Iterator[ContainerDevices]:
    """The containers' devices of the agent, missing in the ledger."""
    known = {device for entry in ledger.entries.values() for device in entry.devices}
    for held in containers:
        devices = tuple(device for device in held.devices if is_ours(device) and device not in known)
        known.update(devices)
        if devices:
            yield ContainerDevices(pod=held.pod, container=held.container, resource=held.resource, devices=devices)


def _grant(
    number: int, held: ContainerDevices, now_seconds: float, source: AllocationSource, seen_by: str = ""
) -> Granted:
    allocation = Allocation(
        number=number,
        resource=held.resource,
        devices=held.devices,
        since_seconds=now_seconds,
        pod=held.pod,
        container=held.container,
        source=source,
    )
    return Granted(entry=Entry(allocation=allocation, seen_by=seen_by))


def _differ(kind: Literal["missing", "orphan", "conflict", "forgotten"], entry: Entry, detail: str) -> Difference:
    allocation = entry.allocation
    return Difference(kind=kind, resource=allocation.resource, devices=allocation.devices, detail=detail)
