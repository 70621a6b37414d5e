"""The ledger of a starting agent.

Owns the choice between the journal, the previous journal, and an empty ledger; `reconcile` finds the rest.
Refuses to lose evidence: a file not used whole is set aside, and a later version's file is not touched.
"""

import re
from typing import Final

from msgspec.structs import replace

from nodeagent.components.allocations.journal_format import Parsed, parse_journal, refuse_newer
from nodeagent.components.allocations.ledger import Ledger, Opened, apply_record, replay
from nodeagent.components.allocations.roles.grants import Entry, Granted, HeldFaults
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.values import Value
from nodeagent.rules.receipts import FAULTS_MAX

_MACHINE_ID: Final = re.compile("[0-9a-f]{32}")
"""The form of the id in /etc/machine-id."""


class Found(Value, frozen=True):
    """The files of the state directory; `None` for a missing file."""

    current: bytes | None
    previous: bytes | None


class Recovered(Value, frozen=True):
    """The ledger to begin with, and how the files are to be treated."""

    ledger: Ledger
    damage: str = ""
    """The damage of the journal; empty for a sound journal."""
    set_aside: bool = False
    """Whether the current file must be kept under another name."""
    refusal: str = ""
    """Why no journal may be begun: a later version wrote a file, and both must stay untouched."""


def recover_ledger(found: Found, machine: str, boot: str, history_max: int) -> Recovered:
    """The newest trustworthy state of the files."""
    if found.current is None and found.previous is None:
        return Recovered(ledger=Ledger())
    source, damage = _choose_source(found)
    if source.refusal:
        return Recovered(ledger=Ledger(), refusal=source.refusal)
    set_aside = found.current is not None and bool(damage)
    opened = source.records[0] if source.records else None
    if not isinstance(opened, Opened):
        return Recovered(ledger=Ledger(), damage=damage, set_aside=set_aside)
    if _is_of_another(opened.machine, machine):
        reason = f"the journal is that of another machine, {opened.machine}"
        return Recovered(ledger=Ledger(), damage=reason, set_aside=found.current is not None)
    ledger = replay(source.records, history_max)
    if opened.boot != boot:
        ledger = _distrust(ledger)
    return Recovered(ledger=ledger, damage=damage, set_aside=set_aside)


def _is_of_another(written: str, machine: str) -> bool:
    """Whether two machines are told apart: by two ids or by two names of nodes.

    An agent in a pod sees the machine's id or not, as its pod is set, and without the id writes the node's name:
    an id and a name can be of one machine, and no allocation is forgotten on a guess.
    """
    both = (written, machine)
    return all(both) and written != machine and len({_is_id(each) for each in both}) == 1


def _is_id(text: str) -> bool:
    return _MACHINE_ID.fullmatch(text) is not None


def _choose_source(found: Found) -> tuple[Parsed, str]:
    """The file to begin with, and the damage of the preferred file."""
    current = parse_journal(found.current) if found.current is not None else None
    if current is not None and current.refusal:
        return current, ""
    is_used = current is None or not current.records
    before = found.previous or b""
    previous = parse_journal(before) if is_used else Parsed(records=(), refusal=refuse_newer(before))
    if previous.refusal:
        return replace(previous, refusal=f"the one before it, whose name ends in .prev: {previous.refusal}"), ""
    if current is not None and not is_used:
        return current, current.damage
    damage = f"the journal: {current.damage}" if current is not None else "the journal is missing"
    if found.previous is not None:
        damage += "; the one before it is used"
    return previous, damage


def _distrust(ledger: Ledger) -> Ledger:
    """After a reboot no old container runs: entries stay until the kubelet answers, but prove nothing."""
    entries: dict[int, Entry] = {number: replace(entry, seen_by="") for number, entry in ledger.entries.items()}
    fractions = ledger.fractions
    reservations = {number: replace(one, kubelet_run="") for number, one in fractions.reservations.items()}
    return replace(ledger, entries=entries, fractions=replace(fractions, reservations=reservations))


def merge_ledgers(recovered: Ledger, present: Ledger, history_max: int) -> Ledger:
    """The journal's ledger joined with the newer ledger from the time without a readable journal, renumbered."""
    ledger = recovered
    holdings = dict[str, str]()
    for number, entry in present.entries.items():
        known = ledger.holding(entry.allocation.resource, entry.devices)
        holdings[str(number)] = str(ledger.next_number if known is None else known.allocation.number)
        if known is None:
            numbered = replace(entry, allocation=replace(entry.allocation, number=ledger.next_number))
            ledger = apply_record(ledger, Granted(entry=numbered), history_max)
    offset = ledger.next_number - 1
    fractions = _merge_fractions(ledger.fractions, present.fractions, offset)
    changes = {number + offset: replace(change, number=number + offset) for number, change in present.changes.items()}
    holdings |= {str(number): str(number + offset) for number in present.fractions.bindings}
    sessions = {
        number + offset: replace(session, number=number + offset) for number, session in present.sessions.items()
    }
    upgrades = {number + offset: replace(one, number=number + offset) for number, one in present.upgrades.items()}
    used = (*fractions.reservations, *fractions.bindings, *changes, *sessions, *upgrades)
    return replace(
        ledger,
        next_number=max(ledger.next_number, *(number + 1 for number in used)) if used else ledger.next_number,
        fractions=fractions,
        claims={**ledger.claims, **present.claims},
        ended_claims={**ledger.ended_claims, **present.ended_claims},
        changes={**ledger.changes, **changes},
        doors={**ledger.doors, **present.doors},
        cordons={**ledger.cordons, **present.cordons},
        faults=_merge_faults(ledger.faults, {holdings.get(key, key): seen for key, seen in present.faults.items()}),
        sessions={**ledger.sessions, **sessions},
        upgrades={**ledger.upgrades, **upgrades},
    )


def _merge_faults(recovered: HeldFaults, present: HeldFaults) -> HeldFaults:
    """The faults of both, by holding; the journal's are older."""
    joined = {key: (*recovered.get(key, ()), *seen)[:FAULTS_MAX] for key, seen in present.items()}
    return {**recovered, **joined}


def _merge_fractions(recovered: FractionTable, present: FractionTable, offset: int) -> FractionTable:
    """The fractions of both; a reservation in both is counted once, and its recovered binding stays as it was."""
    numbers = {number: number + offset for number in present.reservations}
    for reservation in present.reservations.values():
        for known in recovered.find_reservations(reservation.resource, reservation.devices):
            if known.cdi_name == reservation.cdi_name:
                numbers[reservation.number] = known.number
    reservations = {
        numbers[number]: replace(reservation, number=numbers[number])
        for number, reservation in present.reservations.items()
        if numbers[number] not in recovered.reservations
    }
    bindings = dict[int, Binding]()
    for binding in present.bindings.values():
        redeemed = tuple(numbers[number] for number in binding.reservations)
        if recovered.redeemed.keys().isdisjoint(redeemed):
            number = binding.number + offset
            bindings[number] = replace(binding, number=number, reservations=redeemed)
    return FractionTable(
        reservations={**recovered.reservations, **reservations}, bindings={**recovered.bindings, **bindings}
    )
