"""Who holds what, as a value, and the records that change it: replaying the records gives the ledger.

Owns the meaning of each record.
Refuses to judge: whether something is to be recorded is decided beside it, in `reconcile` and `refuse`.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import ClassVar, Final

from msgspec import field
from msgspec.structs import replace

from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.values import Value

FORMAT: Final = 1
"""Version of the records; a journal of a later one is kept aside, not read."""


class Entry(Value, frozen=True):
    """One living allocation."""

    allocation: Allocation
    seen_by: str = ""
    """The run of the kubelet that last showed this allocation as its own; empty while none has.

    A kubelet forgets only by restarting, so what the present run has shown it surely knows.
    """

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """What is held."""
        return self.allocation.devices


class Ended(Value, frozen=True):
    """An allocation of the past."""

    allocation: Allocation
    until_seconds: float
    why: str


class Opened(Value, frozen=True, tag="opened"):
    """The first record of a journal: all that was known when it was begun."""

    format: int = FORMAT
    machine: str = ""
    boot: str = ""
    next_number: int = 1
    entries: tuple[Entry, ...] = ()
    history: tuple[Ended, ...] = ()


class Granted(Value, frozen=True, tag="granted"):
    """Devices were given to a container; who held one of them before holds it no more."""

    entry: Entry


class Identified(Value, frozen=True, tag="identified"):
    """The kubelet named the container."""

    number: int
    pod: PodIdentity
    container: str
    seen_by: str


class Forgotten(Value, frozen=True, tag="forgotten"):
    """The kubelet no longer knows of the allocation although its pod lives."""

    number: int


class Freed(Value, frozen=True, tag="freed"):
    """The devices are free again."""

    number: int
    at_seconds: float
    why: str


Record = Opened | Granted | Identified | Forgotten | Freed


_read_allocation: Final = attrgetter("allocation")


class Index(Value, frozen=True):
    """Where to look without looking through everything: a pod that is admitted must not wait for all the others."""

    numbers: Mapping[DeviceId, int]
    """The entry that holds each device."""
    runs: Mapping[str, int]
    """How many entries were last shown by each run of the kubelet."""


class Ledger(Value, frozen=True, dict=True):
    """All living allocations by number, and the newest of the past."""

    HANDED_ON: ClassVar[str] = "handed on"

    entries: Mapping[int, Entry] = field(default_factory=dict)
    next_number: int = 1
    history: tuple[Ended, ...] = ()

    @property
    def table(self) -> AllocationTable:
        """What everybody may know."""
        return AllocationTable(allocations=tuple(map(_read_allocation, self.entries.values())))

    @cached_property
    def index(self) -> Index:
        """What follows from the entries; a ledger that comes from another one is given it ready made."""
        runs: dict[str, int] = {}
        for entry in self.entries.values():
            runs[entry.seen_by] = runs.get(entry.seen_by, 0) + 1
        numbers = {device: number for number, entry in self.entries.items() for device in entry.devices}
        return Index(numbers=numbers, runs=runs)

    def holders(self, devices: Iterable[DeviceId]) -> tuple[Entry, ...]:
        """The entries that hold any of these devices, the oldest first."""
        numbers = self.index.numbers
        return tuple(self.entries[number] for number in sorted({numbers[one] for one in devices if one in numbers}))

    def holding(self, resource: ResourceName, devices: Iterable[DeviceId]) -> Entry | None:
        """The entry that holds exactly these devices of this resource."""
        wanted = set(devices)
        return next(
            (
                entry
                for entry in self.holders(wanted)
                if entry.allocation.resource == resource and set(entry.devices) == wanted
            ),
            None,
        )

    def is_all_of(self, run: str) -> bool:
        """Whether this run of the kubelet has shown or asked for everything that is held."""
        return self.index.runs.get(run, 0) == len(self.entries)


def replay(records: Iterable[Record], history_max: int) -> Ledger:
    """The ledger after these records."""
    return apply_records(Ledger(), records, history_max)


def apply_record(ledger: Ledger, record: Record, history_max: int) -> Ledger:
    """The ledger after one more record; a record about an entry that is not there changes nothing."""
    return apply_records(ledger, (record,), history_max)


def apply_records(ledger: Ledger, records: Iterable[Record], history_max: int) -> Ledger:
    """The ledger after these records as well: they cost as much as they are many, whatever is held already."""
    draft = _Draft(ledger, history_max)
    for record in records:
        draft.apply(record)
    return draft.finish()


def open_record(ledger: Ledger, machine: str, boot: str) -> Opened:
    """The record that begins a journal with this ledger."""
    return Opened(
        machine=machine,
        boot=boot,
        next_number=ledger.next_number,
        entries=tuple(ledger.entries.values()),
        history=ledger.history,
    )


class _Draft:
    """A ledger while records are applied to it; copies are made once, not once a record."""

    def __init__(self, ledger: Ledger, history_max: int) -> None:
        self._entries, self._next_number = dict(ledger.entries), ledger.next_number
        self._numbers, self._runs = dict(ledger.index.numbers), dict(ledger.index.runs)
        self._history, self._ended = ledger.history, list[Ended]()
        self._history_max = history_max

    def apply(self, record: Record) -> None:
        if isinstance(record, Opened):
            self._open(record)
        elif isinstance(record, Granted):
            self._grant(record.entry)
        elif isinstance(record, Freed):
            self._free(record)
        else:
            self._change(record)

    def finish(self) -> Ledger:
        history = (*self._history, *self._ended) if self._ended else self._history
        kept = _trim(history, self._history_max)
        ledger = Ledger(entries=self._entries, next_number=self._next_number, history=kept)
        # Where `cached_property` keeps it: the index that this draft has kept up to date.
        ledger.__dict__["index"] = Index(numbers=self._numbers, runs=self._runs)
        return ledger

    def _open(self, record: Opened) -> None:
        """Whatever was known before, it is known anew."""
        entries = {entry.allocation.number: entry for entry in record.entries}
        index = Ledger(entries=entries).index
        self._entries, self._next_number = entries, record.next_number
        self._numbers, self._runs = dict(index.numbers), dict(index.runs)
        self._history, self._ended = record.history, []

    def _grant(self, new: Entry) -> None:
        """Within one pod the kubelet hands a device from an init container on to the next container."""
        taken = set(new.devices)
        for number in sorted({self._numbers[device] for device in taken if device in self._numbers}):
            self._take(number, taken, new.allocation.since_seconds)
        self._put(new)
        self._next_number = max(self._next_number, new.allocation.number + 1)

    def _take(self, number: int, taken: set[DeviceId], at_seconds: float) -> None:
        entry = self._entries[number]
        left = tuple(device for device in entry.devices if device not in taken)
        if left:
            self._put(replace(entry, allocation=replace(entry.allocation, devices=left)))
            return
        self._remove(entry)
        self._ended.append(Ended(allocation=entry.allocation, until_seconds=at_seconds, why=Ledger.HANDED_ON))

    def _change(self, record: Identified | Forgotten) -> None:
        entry = self._entries.get(record.number)
        if entry is None:
            return
        if isinstance(record, Identified):
            known = replace(entry.allocation, pod=record.pod, container=record.container, forgotten=False)
            self._put(replace(entry, allocation=known, seen_by=record.seen_by))
        else:
            self._put(replace(entry, allocation=replace(entry.allocation, forgotten=True)))

    def _free(self, record: Freed) -> None:
        entry = self._entries.get(record.number)
        if entry is not None:
            self._remove(entry)
            self._ended.append(Ended(allocation=entry.allocation, until_seconds=record.at_seconds, why=record.why))

    def _put(self, entry: Entry) -> None:
        """The entry is there, in the place of the one of its number."""
        number = entry.allocation.number
        before = self._entries.get(number)
        if before is not None:
            self._uncount(before)
        self._entries[number] = entry
        self._runs[entry.seen_by] = self._runs.get(entry.seen_by, 0) + 1
        self._numbers.update(dict.fromkeys(entry.devices, number))

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.allocation.number]
        self._uncount(entry)

    def _uncount(self, entry: Entry) -> None:
        left = self._runs.pop(entry.seen_by) - 1
        if left:
            self._runs[entry.seen_by] = left
        for device in entry.devices:
            self._numbers.pop(device, None)


def _trim(history: tuple[Ended, ...], history_max: int) -> tuple[Ended, ...]:
    if len(history) <= history_max:
        return history
    return history[-history_max:] if history_max else ()
