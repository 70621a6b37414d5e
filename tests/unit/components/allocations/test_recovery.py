"""Which ledger an agent begins with."""

import pytest

from nodeagent.components.allocations.journal import encode_records
from nodeagent.components.allocations.ledger import Ledger, Opened, Record
from nodeagent.components.allocations.recovery import Found, Recovered, recover_ledger
from tests.support.allocations import granted, make_entry


def journal(*records: Record, machine: str = "m", boot: str = "b") -> bytes:
    return encode_records([Opened(machine=machine, boot=boot), *records], 0)[0]


def recover(current: bytes | None, previous: bytes | None = None, *, boot: str = "b") -> Recovered:
    return recover_ledger(Found(current=current, previous=previous), "m", boot, 10)


def numbers(ledger: Ledger) -> list[int]:
    return list(ledger.entries)


def test_first_start_begins_empty() -> None:
    """No file at all is no damage."""
    assert recover(None) == Recovered(ledger=Ledger())


def test_sound_journal_is_used() -> None:
    """The journal alone decides while it is sound."""
    recovered = recover(journal(granted(1, "a")), journal(granted(7, "z")))
    assert (numbers(recovered.ledger), recovered.damage, recovered.set_aside) == ([1], "", False)


def test_state_before_the_damage_is_used() -> None:
    """What was written before the damage counts, and the file is kept as evidence."""
    content = journal(granted(1, "a"), granted(2, "b"))
    recovered = recover(content[:-3], journal(granted(7, "z")))
    assert numbers(recovered.ledger) == [1]
    assert recovered.set_aside
    assert "record 3" in recovered.damage


@pytest.mark.parametrize("current", [b"", b"garbage\n", None])
def test_journal_before_steps_in(current: bytes | None) -> None:
    """Where nothing of the journal can be used the one before it is, and people are told."""
    recovered = recover(current, journal(granted(7, "z")))
    assert numbers(recovered.ledger) == [7]
    assert "the one before it is used" in recovered.damage
    assert recovered.set_aside is (current is not None)


@pytest.mark.parametrize("previous", [b"", b"garbage", None])
def test_nothing_usable_begins_empty_and_says_so(previous: bytes | None) -> None:
    """Two useless files are damage, not a crash."""
    recovered = recover(b"garbage", previous)
    assert numbers(recovered.ledger) == []
    assert recovered.damage
    assert recovered.set_aside


@pytest.mark.parametrize(("machine", "kept"), [("other", []), ("m", [1]), ("", [1])])
def test_journal_of_another_machine_is_not_used(machine: str, kept: list[int]) -> None:
    """A cloned disk brings allocations of GPUs that are not here."""
    recovered = recover(journal(granted(1, "a"), machine=machine))
    assert numbers(recovered.ledger) == kept
    assert recovered.set_aside is not bool(kept)


def test_after_a_reboot_entries_prove_nothing() -> None:
    """Containers do not survive a reboot: entries stay, but no pod is defended because of them."""
    before = journal(granted(1, "a"))
    assert recover(before).ledger.entries[1] == make_entry(1, "a")
    assert recover(before, boot="next").ledger.entries[1] == make_entry(1, "a", seen_by="")
