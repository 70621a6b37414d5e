"""The ledger of everything given out, as a value, and the records of its changes: replayed records give the ledger.

Owns how the roles of `roles` make a single ledger, with a single sequence of numbers: no number changes its meaning.
Refuses to judge: `reconcile`, `refuse` and the roles decide which records to write.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import field

from nodeagent.components.allocations.roles.allocation_modes import (
    AllocationModeRecord,
    CordonsKept,
    apply_allocation_mode,
    apply_cordons,
)
from nodeagent.components.allocations.roles.changes import ChangeRecord, Stepped, apply_change
from nodeagent.components.allocations.roles.claims import ClaimDraft, ClaimRecord, Prepared
from nodeagent.components.allocations.roles.fractions import (
    Bound,
    FractionDraft,
    FractionRecord,
    Reserved,
)
from nodeagent.components.allocations.roles.grants import (
    Ended,
    Entry,
    GrantDraft,
    Granted,
    GrantRecord,
    HeldFaults,
    Index,
    index_entries,
)
from nodeagent.components.allocations.roles.repairs import SessionKept, UpgradeKept, apply_session, apply_upgrade
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, Change, EndedClaim, FractionTable, PreparedClaim, Reservation
from nodeagent.model.offering import AllocationMode
from nodeagent.model.repairs import FaultSession
from nodeagent.model.upgrades import DriverUpgrade
from nodeagent.model.values import Value

FORMAT: Final = 2
"""Version of the records. 1 had grants alone; a journal of a later version is left untouched and not read."""


class Opened(Value, frozen=True, tag="opened"):
    """The first record of a journal: the whole ledger at the journal's beginning."""

    format: int = FORMAT
    machine: str = ""
    boot: str = ""
    next_number: int = 1
    entries: tuple[Entry, ...] = ()
    history: tuple[Ended, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    bindings: tuple[Binding, ...] = ()
    claims: tuple[PreparedClaim, ...] = ()
    ended_claims: tuple[EndedClaim, ...] = ()
    changes: tuple[Change, ...] = ()
    doors: Mapping[GpuUuid, AllocationMode] = field(default_factory=dict)
    cordons: Mapping[CordonSource, tuple[Cordon, ...]] = field(default_factory=dict)
    faults: HeldFaults = field(default_factory=dict)
    sessions: tuple[FaultSession, ...] = ()
    upgrades: tuple[DriverUpgrade, ...] = ()


Record = (
    Opened
    | GrantRecord
    | FractionRecord
    | ClaimRecord
    | ChangeRecord
    | AllocationModeRecord
    | CordonsKept
    | SessionKept
    | UpgradeKept
)

_read_allocation: Final = attrgetter("allocation")


class Node(NamedTuple):
    """The machine, and its boot."""

    machine: str
    boot: str


class Ledger(Value, frozen=True, dict=True):
    """All living allocations by number, the newest of the past, fractions, claims, changes and allocation modes."""

    entries: Mapping[int, Entry] = field(default_factory=dict)
    next_number: int = 1
    """For the next allocation, reservation, binding or change."""
    history: tuple[Ended, ...] = ()
    fractions: FractionTable = field(default_factory=FractionTable)
    claims: Mapping[str, PreparedClaim] = field(default_factory=dict)
    """By the claim's uid."""
    ended_claims: Mapping[str, EndedClaim] = field(default_factory=dict)
    """Claims unprepared not long ago, by uid."""
    changes: Mapping[int, Change] = field(default_factory=dict)
    """Changes under way."""
    doors: Mapping[GpuUuid, AllocationMode] = field(default_factory=dict)
    """The allocation modes that a person has set."""
    cordons: Mapping[CordonSource, tuple[Cordon, ...]] = field(default_factory=dict)
    faults: HeldFaults = field(default_factory=dict)
    """Changed by no record of their own, which an earlier version would not know: a journal begun anew has them."""
    sessions: Mapping[int, FaultSession] = field(default_factory=dict)
    """Fault sessions, the closed ones for as long as their attempts count."""
    upgrades: Mapping[int, DriverUpgrade] = field(default_factory=dict)

    @property
    def table(self) -> AllocationTable:
        """The allocations, for publication."""
        return AllocationTable(allocations=tuple(map(_read_allocation, self.entries.values())))

    @cached_property
    def ready_claims(self) -> ReadyClaims:
        """The prepared claims, for publication."""
        return ReadyClaims(claims=self.claims)

    @cached_property
    def index(self) -> Index:
        """The index of the entries; a ledger from a draft comes with its index."""
        return index_entries(self.entries)

    def holders(self, devices: Iterable[DeviceId]) -> tuple[Entry, ...]:
        """The entries with any of these devices, the oldest first."""
        numbers = self.index.numbers
        return tuple(self.entries[number] for number in sorted({numbers[one] for one in devices if one in numbers}))

    def holding(self, resource: ResourceName, devices: Iterable[DeviceId]) -> Entry | None:
        """The entry with exactly these devices of the resource."""
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
        """Whether the given run of the kubelet has shown or asked for every entry."""
        return self.index.runs.get(run, 0) == len(self.entries)


def replay(records: Iterable[Record], history_max: int) -> Ledger:
    """The ledger after the given records."""
    return apply_records(Ledger(), records, history_max)


def apply_record(ledger: Ledger, record: Record, history_max: int) -> Ledger:
    """The ledger after a further record; a record about a missing entry changes nothing."""
    return apply_records(ledger, (record,), history_max)


def apply_records(ledger: Ledger, records: Iterable[Record], history_max: int) -> Ledger:
    """The ledger after further records, at a cost by their number, not by the size of the ledger."""
    draft = _Draft(ledger, history_max)
    for record in records:
        draft.apply(record)
    return draft.finish()


def open_record(ledger: Ledger, machine: str, boot: str) -> Opened:
    """The first record of a journal for the ledger."""
    return Opened(
        machine=machine,
        boot=boot,
        next_number=ledger.next_number,
        entries=tuple(ledger.entries.values()),
        history=ledger.history,
        reservations=tuple(ledger.fractions.reservations.values()),
        bindings=tuple(ledger.fractions.bindings.values()),
        claims=tuple(ledger.claims.values()),
        ended_claims=tuple(ledger.ended_claims.values()),
        changes=tuple(ledger.changes.values()),
        doors=ledger.doors,
        cordons=ledger.cordons,
        faults=ledger.faults,
        sessions=tuple(ledger.sessions.values()),
        upgrades=tuple(ledger.upgrades.values()),
    )


def _read_opened(record: Opened) -> Ledger:
    """The ledger of an opening record."""
    reservations = {reservation.number: reservation for reservation in record.reservations}
    bindings = {binding.number: binding for binding in record.bindings}
    return Ledger(
        entries={entry.allocation.number: entry for entry in record.entries},
        next_number=record.next_number,
        history=record.history,
        fractions=FractionTable(reservations=reservations, bindings=bindings),
        claims={claim.uid: claim for claim in record.claims},
        ended_claims={ended.uid: ended for ended in record.ended_claims},
        changes={change.number: change for change in record.changes},
        doors=record.doors,
        cordons=record.cordons,
        faults=record.faults,
        sessions={session.number: session for session in record.sessions},
        upgrades={upgrade.number: upgrade for upgrade in record.upgrades},
    )


class _Draft:
    """A ledger while records are applied; copies are made once, not once a record."""

    def __init__(self, ledger: Ledger, history_max: int) -> None:
        self._history_max = history_max
        self._begin(ledger)

    def _begin(self, ledger: Ledger) -> None:
        self._ledger, self._next_number = ledger, ledger.next_number
        # A record is of one kind, and an agent may hold hundreds of each.
        self._grants: GrantDraft | None = None
        self._fractions: FractionDraft | None = None
        self._claims: ClaimDraft | None = None
        self._changes, self._doors, self._cordons = dict(ledger.changes), dict(ledger.doors), dict(ledger.cordons)
        self._sessions, self._upgrades = dict(ledger.sessions), dict(ledger.upgrades)

    def apply(self, record: Record) -> None:
        if isinstance(record, GrantRecord):
            self._open_grants().apply(record)
        elif isinstance(record, FractionRecord):
            self._fractions = self._fractions or FractionDraft(self._ledger.fractions)
            if ended := self._fractions.apply(record, self._next_number):
                self._open_grants().note_end(str(ended.allocation.number), ended)
        elif isinstance(record, ClaimRecord):
            self._claims = self._claims or ClaimDraft(self._ledger.claims, self._ledger.ended_claims)
            if isinstance(record, Prepared):
                self._claims.prepare(record)
            else:
                self._open_grants().note_end(record.uid, *self._claims.unprepare(record))
        elif isinstance(record, ChangeRecord):
            apply_change(self._changes, record, self._next_number)
        elif isinstance(record, AllocationModeRecord):
            apply_allocation_mode(self._doors, record)
        elif isinstance(record, CordonsKept):
            apply_cordons(self._cordons, record)
        elif isinstance(record, SessionKept | UpgradeKept):
            self._apply_repair(record)
        else:
            self._begin(_read_opened(record))
            self._open_grants()  # the history may have to be shortened
        self._next_number = max(self._next_number, _read_number(record) + 1)

    def _apply_repair(self, record: SessionKept | UpgradeKept) -> None:
        if isinstance(record, SessionKept):
            apply_session(self._sessions, record, self._next_number)
        else:
            apply_upgrade(self._upgrades, record, self._next_number)

    def _open_grants(self) -> GrantDraft:
        if self._grants is None:
            known = self._ledger
            self._grants = GrantDraft(known.entries, known.index, known.history, self._history_max, known.faults)
        return self._grants

    def finish(self) -> Ledger:
        known, fractions, claims, grants = self._ledger, self._fractions, self._claims, self._grants
        ledger = Ledger(
            entries=known.entries if grants is None else grants.entries,
            next_number=self._next_number,
            history=known.history if grants is None else grants.history,
            fractions=known.fractions if fractions is None else fractions.fractions,
            claims=known.claims if claims is None else claims.claims,
            ended_claims=known.ended_claims if claims is None else claims.ended,
            changes=self._changes,
            doors=self._doors,
            cordons=self._cordons,
            faults=known.faults if grants is None else grants.faults,
            sessions=self._sessions,
            upgrades=self._upgrades,
        )
        # Where `cached_property` keeps its value: the index kept up to date by the draft.
        ledger.__dict__["index"] = known.index if grants is None else grants.index
        return ledger


def _read_number(record: Record) -> int:
    """The number used up by a record; 0 for a record without a number."""
    if isinstance(record, Granted):
        return record.entry.allocation.number
    if isinstance(record, Reserved):
        return record.reservation.number
    if isinstance(record, Bound):
        return record.binding.number
    if isinstance(record, SessionKept):
        return record.session.number
    if isinstance(record, UpgradeKept):
        return record.upgrade.number
    return record.number if isinstance(record, Stepped) else 0
