"""Laws of the one journal, for any sequence of the records of all roles, those that make no sense included."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.components.allocations.journal_format import encode_records, parse_journal
from nodeagent.components.allocations.ledger import (
    Ledger,
    Opened,
    Record,
    apply_record,
    apply_records,
    open_record,
    replay,
)
from nodeagent.components.allocations.recovery import Found, merge_ledgers, recover_ledger
from nodeagent.components.allocations.roles.allocation_modes import AllocationModeSet, CordonsKept
from nodeagent.components.allocations.roles.changes import Finished
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared
from nodeagent.components.allocations.roles.fractions import Bound, Released, Reserved, refuse_binding
from nodeagent.components.allocations.roles.grants import Forgotten, Freed, Granted, Identified
from nodeagent.model.cordons import CordonSource
from nodeagent.model.journal import FractionTable
from nodeagent.model.offering import AllocationMode
from tests.support.allocations import make_entry, pod_named
from tests.support.examples import examples
from tests.support.journals import (
    gpu,
    kept,
    make_binding,
    make_claim,
    make_cordon,
    make_part,
    make_reservation,
    stepped,
)

NAMES = st.sampled_from("abc")
UIDS = st.sampled_from(["one", "two", "three"])
PARTS = st.lists(
    st.builds(make_part, NAMES, st.integers(0, 60), st.integers(0, 600)), min_size=1, max_size=2, unique_by=str
)
CAPACITIES = [make_part(name, 100, 1024) for name in "abc"]
HISTORY = 5


@st.composite
def histories(draw: st.DrawFn, most: int = 25) -> list[Record]:
    """Records as a writer makes them, each with the next number or one that may be living, and some that are odd."""
    found: list[Record] = []
    ledger = Ledger()
    for _ in range(draw(st.integers(0, most))):
        record = draw(_records(ledger))
        found.append(record)
        ledger = apply_record(ledger, record, HISTORY)
    return found


def _records(ledger: Ledger) -> st.SearchStrategy[Record]:
    new = ledger.next_number
    some = st.integers(1, new)
    next_or_old = st.one_of(st.just(new), some)
    redeemed = st.lists(
        st.sampled_from(sorted(ledger.fractions.reservations)) if ledger.fractions.reservations else some, max_size=2
    ).map(tuple)
    return st.one_of(
        st.builds(lambda name: Granted(entry=make_entry(new, name)), NAMES),
        st.builds(lambda n: Identified(number=n, pod=pod_named("train"), container="main", seen_by="now"), some),
        st.builds(lambda n: Forgotten(number=n), some),
        st.builds(lambda n: Freed(number=n, at_seconds=1.0, why="given back"), some),
        st.builds(lambda n, tokens: Reserved(reservation=make_reservation(n, tokens)), next_or_old, NAMES),
        st.builds(lambda n, r, parts: Bound(binding=make_binding(n, r, *parts)), next_or_old, redeemed, PARTS),
        st.builds(lambda n: Released(number=n, at_seconds=1.0, why="over"), some),
        st.builds(lambda uid, name: Prepared(claim=make_claim(uid, name)), UIDS, NAMES),
        st.builds(lambda uid: Unprepared(uid=uid, at_seconds=1.0, why="over"), UIDS),
        st.builds(lambda n, name: stepped(n, name, on=name), next_or_old, NAMES),
        st.builds(lambda n: Finished(number=n, at_seconds=1.0, outcome="done"), some),
        st.builds(
            lambda name, door: AllocationModeSet(gpu=gpu(name), door=door, at_seconds=1.0),
            NAMES,
            st.none() | st.sampled_from(list(AllocationMode)),
        ),
        st.builds(
            lambda source, cordons: CordonsKept(source=source, cordons=tuple(cordons), at_seconds=1.0),
            st.sampled_from(list(CordonSource)),
            st.lists(st.builds(make_cordon, NAMES, st.none() | st.floats(0, 1e10)), max_size=2),
        ),
        st.builds(
            lambda n, name, closed: kept(n, name, closed_seconds=closed), next_or_old, NAMES, st.none() | st.just(1.0)
        ),
    )


def write(records: Sequence[Record]) -> bytes:
    return encode_records(records, 0)[0]


def check_laws(ledger: Ledger) -> None:
    """What must hold of every ledger, however it came about."""
    fractions = ledger.fractions
    redeemed = [number for binding in fractions.bindings.values() for number in binding.reservations]
    assert len(set(redeemed)) == len(redeemed)
    assert set(redeemed) <= fractions.reservations.keys()
    assert set(fractions.redeemed) == set(redeemed)
    assert fractions.promised == FractionTable(reservations=fractions.reservations).promised
    tables = (ledger.entries, fractions.reservations, fractions.bindings, ledger.changes, ledger.sessions)
    numbers = [number for table in tables for number in table]
    assert len(set(numbers)) == len(numbers)
    assert all(number < ledger.next_number for number in numbers)


@settings(max_examples=examples(60), deadline=None)
@given(histories(), st.data())
def test_a_journal_begun_anew_anywhere_gives_the_same_ledger(history: list[Record], data: st.DataObject) -> None:
    """What was known at any moment, written as one record, and the records after it are as good as all of them."""
    cut = data.draw(st.integers(0, len(history)))
    whole = replay([Opened(), *history], HISTORY)
    snapshot = open_record(replay(history[:cut], HISTORY), "", "")
    parsed = parse_journal(write([snapshot, *history[cut:]]))
    assert (parsed.damage, parsed.refusal) == ("", "")
    assert replay(parsed.records, HISTORY) == whole
    assert replay(parse_journal(write([open_record(whole, "", "")])).records, HISTORY) == whole


@settings(max_examples=examples(60), deadline=None)
@given(histories())
def test_every_ledger_keeps_the_laws(history: list[Record]) -> None:
    """Bindings redeem living reservations, each once; numbers mean one thing; what is found by an index is there."""
    ledger = Ledger()
    for record in history:
        before, ledger = ledger, apply_record(ledger, record, HISTORY)
        check_laws(ledger)
        if isinstance(record, Released):
            assert record.number not in ledger.fractions.bindings
            assert record.number not in ledger.fractions.reservations or record.number in before.fractions.redeemed
        if isinstance(record, Finished):
            assert record.number not in ledger.changes
        if isinstance(record, Unprepared):
            assert record.uid not in ledger.claims
    assert replay(history, HISTORY) == ledger


@settings(max_examples=examples(60), deadline=None)
@given(histories())
def test_the_same_journal_twice_gives_the_same_ledger(history: list[Record]) -> None:
    """Whole, always; and what was of effect in the other roles has none when it is told again."""
    journal = [Opened(), *history]
    assert replay([*journal, *journal], HISTORY) == replay(journal, HISTORY)
    once, beside = Ledger(), list[Record]()
    for record in history:
        after = apply_record(once, record, HISTORY)
        if after != once and not isinstance(record, Granted | Identified | Forgotten | Freed):
            once, beside = after, [*beside, record]
    assert apply_records(once, beside, HISTORY) == once


@settings(max_examples=examples(60), deadline=None)
@given(histories(12), st.data())
def test_any_cut_and_any_flip_gives_a_state_that_was(history: list[Record], data: st.DataObject) -> None:
    """A damaged journal is read as one of the states it went through; damage is never taken for a later version."""
    records = [Opened(), *history]
    content = write(records)
    position = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    whole = content[:position].count(b"\n")
    for damaged in (content[:position], bytes(flipped)):
        recovered = recover_ledger(Found(current=damaged, previous=None), "", "", HISTORY)
        assert recovered.refusal == ""
        assert recovered.ledger == replay(records[:whole], HISTORY)


@settings(max_examples=examples(60), deadline=None)
@given(histories(), histories())
def test_joining_keeps_the_laws_and_loses_nothing(earlier: list[Record], later: list[Record]) -> None:
    """What the journal held stays as it was; what was learnt without it stands beside it, under numbers of its own."""
    recovered, present = replay(earlier, HISTORY), replay(later, HISTORY)
    joined = merge_ledgers(recovered, present, HISTORY)
    check_laws(joined)
    assert recovered.fractions.reservations.items() <= joined.fractions.reservations.items()
    assert recovered.fractions.bindings.items() <= joined.fractions.bindings.items()
    assert joined.claims.keys() == recovered.claims.keys() | present.claims.keys()
    assert joined.doors == {**recovered.doors, **present.doors}
    assert joined.cordons == {**recovered.cordons, **present.cordons}
    assert len(joined.changes) == len(recovered.changes) + len(present.changes)


@settings(max_examples=examples(80), deadline=None)
@given(histories())
def test_what_is_decided_first_never_gives_a_gpu_out_for_more_than_it_has(history: list[Record]) -> None:
    """A writer that asks before each binding keeps every GPU within its capacity, whatever else is recorded."""
    ledger = Ledger()
    for record in history:
        if isinstance(record, Bound):
            asked = record.binding
            known = asked.number in ledger.fractions.bindings or asked.number >= ledger.next_number
            refusal = refuse_binding(ledger.fractions, asked, CAPACITIES)
            if refusal:
                continue
            ledger = apply_record(ledger, record, HISTORY)
            assert (ledger.fractions.bindings.get(asked.number) == asked) is known
        else:
            ledger = apply_record(ledger, record, HISTORY)
        for capacity in CAPACITIES:
            taken = ledger.fractions.sum_fractions(capacity.gpu)
            assert taken.cores <= capacity.cores
            assert taken.memory_bytes <= capacity.memory_bytes
