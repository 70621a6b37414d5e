"""Who holds what, as a value, and the records that change it: replaying the records gives the ledger.

Owns the meaning of each record.
Refuses to judge: whether something is to be recorded is decided beside it, in `reconcile` and `refuse`.
"""

from collections.abc import Iterable, Mapping
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


class Ledger(Value, frozen=True):
    """All living allocations by number, and the newest of the past."""

    HANDED_ON: ClassVar[str] = "handed on"

    entries: Mapping[int, Entry] = field(default_factory=dict)
    next_number: int = 1
    history: tuple[Ended, ...] = ()

    @property
    def table(self) -> AllocationTable:
        """What everybody may know."""
        return AllocationTable(allocations=tuple(entry.allocation for entry in self.entries.values()))

    def holders(self, devices: Iterable[DeviceId]) -> tuple[Entry, ...]:
        """The entries that hold any of these devices."""
        wanted = set(devices)
        return tuple(entry for entry in self.entries.values() if not wanted.isdisjoint(entry.devices))

    def holding(self, resource: ResourceName, devices: Iterable[DeviceId]) -> Entry | None:
        """The entry that holds exactly these devices of this resource."""
        wanted = set(devices)
        return next(
            (
                entry
                for entry in self.entries.values()
                if entry.allocation.resource == resource and set(entry.devices) == wanted
            ),
            None,
        )


def replay(records: Iterable[Record], history_max: int) -> Ledger:
    """The ledger after these records."""
    ledger = Ledger()
    for record in records:
        ledger = apply_record(ledger, record, history_max)
    return ledger


def apply_record(ledger: Ledger, record: Record, history_max: int) -> Ledger:
    """The ledger after one more record; a record about an entry that is not there changes nothing."""
    if isinstance(record, Opened):
        return Ledger(
            entries={entry.allocation.number: entry for entry in record.entries},
            next_number=record.next_number,
            history=_trim(record.history, history_max),
        )
    if isinstance(record, Granted):
        return _grant(ledger, record.entry, history_max)
    if isinstance(record, Freed):
        return _free(ledger, record, history_max)
    return _change(ledger, record.number, record)


def open_record(ledger: Ledger, machine: str, boot: str) -> Opened:
    """The record that begins a journal with this ledger."""
    return Opened(
        machine=machine,
        boot=boot,
        next_number=ledger.next_number,
        entries=tuple(ledger.entries.values()),
        history=ledger.history,
    )


def _grant(ledger: Ledger, new: Entry, history_max: int) -> Ledger:
    """Within one pod the kubelet hands a device from an init container on to the next container."""
    taken = set(new.devices)
    entries: dict[int, Entry] = {}
    history = ledger.history
    for number, entry in ledger.entries.items():
        left = tuple(device for device in entry.devices if device not in taken)
        if left == entry.devices:
            entries[number] = entry
        elif left:
            entries[number] = replace(entry, allocation=replace(entry.allocation, devices=left))
        else:
            ended = Ended(allocation=entry.allocation, until_seconds=new.allocation.since_seconds, why=Ledger.HANDED_ON)
            history = _remember(history, ended, history_max)
    number = new.allocation.number
    entries[number] = new
    return Ledger(entries=entries, next_number=max(ledger.next_number, number + 1), history=history)


def _change(ledger: Ledger, number: int, record: Identified | Forgotten) -> Ledger:
    entry = ledger.entries.get(number)
    if entry is None:
        return ledger
    if isinstance(record, Identified):
        known = replace(entry.allocation, pod=record.pod, container=record.container, forgotten=False)
        changed = replace(entry, allocation=known, seen_by=record.seen_by)
    else:
        changed = replace(entry, allocation=replace(entry.allocation, forgotten=True))
    return replace(ledger, entries={**ledger.entries, number: changed})


def _free(ledger: Ledger, record: Freed, history_max: int) -> Ledger:
    entries = dict(ledger.entries)
    entry = entries.pop(record.number, None)
    if entry is None:
        return ledger
    ended = Ended(allocation=entry.allocation, until_seconds=record.at_seconds, why=record.why)
    return replace(ledger, entries=entries, history=_remember(ledger.history, ended, history_max))


def _remember(history: tuple[Ended, ...], ended: Ended, history_max: int) -> tuple[Ended, ...]:
    return _trim((*history, ended), history_max)


def _trim(history: tuple[Ended, ...], history_max: int) -> tuple[Ended, ...]:
    return history[-history_max:] if history_max else ()
