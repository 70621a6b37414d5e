"""Which ledger a starting agent begins with.

Owns the choice between the journal, the one before it, and nothing; what neither knows is found by `reconcile`.
Refuses to lose evidence: whatever is not used whole is to be set aside.
"""

from msgspec.structs import replace

from nodeagent.components.allocations.journal import parse_journal
from nodeagent.components.allocations.ledger import Entry, Granted, Ledger, Opened, apply_record, replay
from nodeagent.model.values import Value


class Found(Value, frozen=True):
    """What the state directory holds; `None` for a file that is not there."""

    current: bytes | None
    previous: bytes | None


class Recovered(Value, frozen=True):
    """Where to begin."""

    ledger: Ledger
    damage: str = ""
    """What was wrong with the journal; empty when nothing was."""
    set_aside: bool = False
    """Whether the current file must be kept under another name."""


def recover_ledger(found: Found, machine: str, boot: str, history_max: int) -> Recovered:
    """The newest state that is beyond doubt."""
    if found.current is None and found.previous is None:
        return Recovered(ledger=Ledger())
    current = parse_journal(found.current) if found.current is not None else None
    if current is not None and current.records:
        damage, source = current.damage, current
    else:
        damage = f"the journal: {current.damage}" if current is not None else "the journal is missing"
        source = parse_journal(found.previous or b"")
        if found.previous is not None:
            damage += "; the one before it is used"
    set_aside = found.current is not None and bool(damage)
    opened = source.records[0] if source.records else None
    if not isinstance(opened, Opened):
        return Recovered(ledger=Ledger(), damage=damage, set_aside=set_aside)
    if opened.machine and machine and opened.machine != machine:
        reason = f"the journal is that of another machine, {opened.machine}"
        return Recovered(ledger=Ledger(), damage=reason, set_aside=found.current is not None)
    ledger = replay(source.records, history_max)
    if opened.boot != boot:
        ledger = _distrust(ledger)
    return Recovered(ledger=ledger, damage=damage, set_aside=set_aside)


def _distrust(ledger: Ledger) -> Ledger:
    """After a reboot no container of old runs: entries stay until somebody says more, but are no proof of anything."""
    entries: dict[int, Entry] = {number: replace(entry, seen_by="") for number, entry in ledger.entries.items()}
    return replace(ledger, entries=entries)


def merge_ledgers(recovered: Ledger, present: Ledger, history_max: int) -> Ledger:
    """What the journal held, with what was learnt while it could not be read; the latter is newer, and renumbered."""
    ledger = recovered
    for entry in present.entries.values():
        if ledger.holding(entry.allocation.resource, entry.devices) is None:
            numbered = replace(entry, allocation=replace(entry.allocation, number=ledger.next_number))
            ledger = apply_record(ledger, Granted(entry=numbered), history_max)
    return ledger
