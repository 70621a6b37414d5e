"""Whole devices and replicas: handed out by the device plugin, named by the kubelet, given back.

Owns that a device has at most a single holder: the newest.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec.structs import replace

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.ids import DeviceId
from nodeagent.model.values import Value
from nodeagent.rules.receipts import SeenFault

HANDED_ON: Final = "handed on"
"""Why an allocation ended whose devices all went to another allocation."""
HeldFaults: TypeAlias = Mapping[str, tuple[SeenFault, ...]]
"""The faults of each living holding with faults, by the number of the grant or binding, or by the claim's uid."""


class Entry(Value, frozen=True):
    """A living allocation."""

    allocation: Allocation
    seen_by: str = ""
    """The run of the kubelet that last showed the allocation as its own; empty before any run.

    A kubelet forgets only by restarting, so the present run surely knows the allocations it has shown.
    """

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """The held devices."""
        return self.allocation.devices


class Ended(Value, frozen=True):
    """An allocation of the past."""

    allocation: Allocation
    until_seconds: float
    why: str
    faults: tuple[SeenFault, ...] = ()
    """The faults of its GPUs until then."""


class Granted(Value, frozen=True, tag="granted"):
    """Devices were given to a container; earlier holders lose the devices."""

    entry: Entry


class Identified(Value, frozen=True, tag="identified"):
    """The kubelet named the container."""

    number: int
    pod: PodIdentity
    container: str
    seen_by: str


class Forgotten(Value, frozen=True, tag="forgotten"):
    """The kubelet no longer knows the allocation although the pod lives."""

    number: int


class Freed(Value, frozen=True, tag="freed"):
    """The devices are free again."""

    number: int
    at_seconds: float
    why: str


GrantRecord = Granted | Identified | Forgotten | Freed


class Index(Value, frozen=True):
    """The entries by device and by run: a pod's admission must not wait for a search through all entries."""

    numbers: Mapping[DeviceId, int]
    """The entry that holds each device."""
    runs: Mapping[str, int]
    """How many entries were last shown by each run of the kubelet."""


def index_entries(entries: Mapping[int, Entry]) -> Index:
    """Index the entries."""
    runs: dict[str, int] = {}
    for entry in entries.values():
        runs[entry.seen_by] = runs.get(entry.seen_by, 0) + 1
    numbers = {device: number for number, entry in entries.items() for device in entry.devices}
    return Index(numbers=numbers, runs=runs)


class GrantDraft:
    """The grants while records are applied; copies are made once, not once a record."""

    def __init__(
        self,
        entries: Mapping[int, Entry],
        index: Index,
        history: tuple[Ended, ...],
        history_max: int,
        faults: HeldFaults,
    ) -> None:
        self.entries, self.faults = dict(entries), dict(faults)
        self._numbers, self._runs = dict(index.numbers), dict(index.runs)
        self._history, self._history_max = history, history_max
        self._ended: list[Ended] = []

    @property
    def index(self) -> Index:
        """The index, kept up to date."""
        return Index(numbers=self._numbers, runs=self._runs)

    @property
    def history(self) -> tuple[Ended, ...]:
        """The newest ended allocations, the oldest first."""
        history = (*self._history, *self._ended) if self._ended else self._history
        if len(history) <= self._history_max:
            return history
        return history[-self._history_max :] if self._history_max else ()

    def apply(self, record: GrantRecord) -> None:
        """Apply a record; a record about a missing entry changes nothing."""
        if isinstance(record, Granted):
            self._grant(record.entry)
        elif isinstance(record, Freed):
            self._free(record)
        else:
            self._change(record)

    def note_end(self, holding: str, *ended: Ended) -> None:
        """Remember the end of a holding, which several pods may have had together, with the faults seen until then."""
        faults = self.faults.pop(holding, ())
        self._ended.extend(replace(each, faults=faults) for each in ended)

    def _grant(self, new: Entry) -> None:
        """Add an entry; within one pod the kubelet hands a device from an init container on to the next container."""
        taken = set(new.devices)
        for number in sorted({self._numbers[device] for device in taken if device in self._numbers}):
            self._take(number, taken, new.allocation.since_seconds)
        self._put(new)

    def _take(self, number: int, taken: set[DeviceId], at_seconds: float) -> None:
        entry = self.entries[number]
        left = tuple(device for device in entry.devices if device not in taken)
        if left:
            self._put(replace(entry, allocation=replace(entry.allocation, devices=left)))
            return
        self._remove(entry)
        self.note_end(str(number), Ended(allocation=entry.allocation, until_seconds=at_seconds, why=HANDED_ON))

    def _change(self, record: Identified | Forgotten) -> None:
        entry = self.entries.get(record.number)
        if entry is None:
            return
        if isinstance(record, Identified):
            known = replace(entry.allocation, pod=record.pod, container=record.container, forgotten=False)
            self._put(replace(entry, allocation=known, seen_by=record.seen_by))
        else:
            self._put(replace(entry, allocation=replace(entry.allocation, forgotten=True)))

    def _free(self, record: Freed) -> None:
        entry = self.entries.get(record.number)
        if entry is not None:
            self._remove(entry)
            ended = Ended(allocation=entry.allocation, until_seconds=record.at_seconds, why=record.why)
            self.note_end(str(record.number), ended)

    def _put(self, entry: Entry) -> None:
        """Store the entry under its number, in place of an earlier version."""
        number = entry.allocation.number
        before = self.entries.get(number)
        if before is not None:
            self._uncount(before)
        self.entries[number] = entry
        self._runs[entry.seen_by] = self._runs.get(entry.seen_by, 0) + 1
        self._numbers.update(dict.fromkeys(entry.devices, number))

    def _remove(self, entry: Entry) -> None:
        del self.entries[entry.allocation.number]
        self._uncount(entry)

    def _uncount(self, entry: Entry) -> None:
        left = self._runs.pop(entry.seen_by) - 1
        if left:
            self._runs[entry.seen_by] = left
        for device in entry.devices:
            self._numbers.pop(device, None)
