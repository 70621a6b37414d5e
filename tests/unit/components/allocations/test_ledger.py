"""What each record does to the ledger."""

import pytest
from msgspec.structs import replace

from nodeagent.components.allocations.ledger import Ledger, Opened, Record, apply_record, open_record, replay
from nodeagent.components.allocations.roles.grants import Ended, Forgotten, Freed, Granted, Identified
from tests.support.allocations import GPU, device_ids, granted, make_entry, make_ledger, pod_named


def held(ledger: Ledger) -> dict[int, str]:
    return {
        number: "".join(device.removeprefix("GPU-") for device in entry.devices)
        for number, entry in ledger.entries.items()
    }


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([granted(1, "ab")], {1: "ab"}),
        ([granted(1, "a"), granted(2, "b")], {1: "a", 2: "b"}),
        ([granted(1, "a"), granted(2, "a")], {2: "a"}),
        ([granted(1, "abc"), granted(2, "b")], {1: "ac", 2: "b"}),
        ([granted(1, "a"), Freed(number=1, at_seconds=9.0, why="given back")], {}),
        ([granted(1, "a"), Freed(number=2, at_seconds=9.0, why="given back")], {1: "a"}),
        ([granted(1, "a"), Opened(entries=(make_entry(4, "c"),), next_number=5)], {4: "c"}),
        ([Forgotten(number=3)], {}),
    ],
)
def test_records_change_who_holds_what(records: list[Record], expected: dict[int, str]) -> None:
    """A device has one holder: the newest grant takes it, a release frees it, an opening starts over."""
    assert held(replay(records, history_max=10)) == expected


def test_identification_names_the_holder_and_ends_a_doubt() -> None:
    """The container's name is taken over, and what was forgotten no longer is."""
    named = Identified(number=1, pod=pod_named("train"), container="main", seen_by="run")
    ledger = replay([granted(1, "a"), Forgotten(number=1)], 10)
    assert ledger.entries[1].allocation.forgotten
    entry = apply_record(ledger, named, 10).entries[1]
    assert entry == make_entry(1, "a", pod="train", seen_by="run")


def test_numbers_are_never_used_twice() -> None:
    """A freed allocation's number stays used, so that history and facts mean one thing."""
    ledger = replay([granted(1, "a"), granted(2, "b"), Freed(number=2, at_seconds=1.0, why="given back")], 10)
    assert ledger.next_number == 3


@pytest.mark.parametrize(("limit", "kept"), [(0, []), (2, [2, 3]), (10, [1, 2, 3])])
def test_history_keeps_the_newest(limit: int, kept: list[int]) -> None:
    """Ended allocations are remembered up to the limit, the oldest go first."""
    records: list[Record] = [granted(number, "a") for number in (1, 2, 3, 4)]
    assert [ended.allocation.number for ended in replay(records, limit).history] == kept
    opened = open_record(replay(records, 10), "", "")
    assert [ended.allocation.number for ended in replay([opened], limit).history] == kept


def test_history_says_how_and_when_it_ended() -> None:
    """What was handed on and what was given back are told apart."""
    handed_on = replay([granted(1, "a"), Granted(entry=make_entry(2, "a", since_seconds=5.0))], 10)
    given_back = replay([granted(1, "a"), Freed(number=1, at_seconds=7.0, why="given back")], 10)
    first = make_entry(1, "a").allocation
    assert handed_on.history == (Ended(allocation=first, until_seconds=5.0, why="handed on"),)
    assert given_back.history == (Ended(allocation=first, until_seconds=7.0, why="given back"),)


def test_opening_record_holds_the_whole_ledger() -> None:
    """Replaying the record that begins a journal gives the ledger it was made from."""
    ledger = replay([granted(1, "a"), granted(2, "bc"), granted(3, "a"), Forgotten(number=2)], 10)
    assert replay([open_record(ledger, "machine", "boot")], 10) == ledger


def test_table_and_holders() -> None:
    """The table has every living allocation; a holder is found by any of its devices, or by all of them exactly."""
    ledger = make_ledger(make_entry(1, "ab"), make_entry(2, "c"))
    assert [allocation.number for allocation in ledger.table.allocations] == [1, 2]
    assert [entry.allocation.number for entry in ledger.holders(device_ids("bc"))] == [1, 2]
    assert ledger.holding(GPU, device_ids("ba")) == make_entry(1, "ab")
    assert ledger.holding(GPU, device_ids("a")) is None
    assert replace(ledger, entries={}).holding(GPU, device_ids("c")) is None
