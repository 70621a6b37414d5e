"""Laws of the allocation journal, for any history."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.components.allocations.journal_format import encode_records, parse_journal
from nodeagent.components.allocations.ledger import Ledger, Opened, Record, apply_record, open_record, replay
from nodeagent.components.allocations.reconcile import Absence, PodListPoll, reconcile
from nodeagent.components.allocations.recovery import Found, merge_ledgers, recover_ledger
from nodeagent.components.allocations.refuse import KubeletRun, decide_refusal, find_doubtful, find_holders
from nodeagent.components.allocations.roles.grants import Forgotten, Freed, Granted, Identified
from nodeagent.model.ports import ContainerDevices, PodListing
from tests.support.allocations import GPU, device_ids, listing, make_entry, pod_named
from tests.support.examples import examples

NAMES = "abcdef"
DEVICES = st.sets(st.sampled_from(NAMES), min_size=1, max_size=4).map(lambda names: "".join(sorted(names)))
NUMBERS = st.integers(1, 8)
PODS = st.sampled_from(["one", "two", "three"])
RUNS = st.sampled_from(["", "before", "now"])


@st.composite
def records(draw: st.DrawFn) -> Record:
    number = draw(NUMBERS)
    return draw(
        st.one_of(
            st.builds(
                lambda devices, pod, seen_by: Granted(entry=make_entry(number, devices, pod=pod, seen_by=seen_by)),
                DEVICES,
                PODS | st.just(""),
                RUNS,
            ),
            st.builds(
                lambda pod, seen_by: Identified(number=number, pod=pod_named(pod), container="main", seen_by=seen_by),
                PODS,
                RUNS,
            ),
            st.just(Forgotten(number=number)),
            st.builds(
                lambda at: Freed(number=number, at_seconds=at, why="given back"),
                st.floats(0, 1e9, allow_nan=False, allow_infinity=False),
            ),
        )
    )


HISTORIES = st.lists(records(), max_size=30)


@st.composite
def listings(draw: st.DrawFn) -> PodListing:
    """What a kubelet may say: each device with one container at most, and pods without any."""
    holders: dict[str, list[str]] = {}
    for name in draw(st.sets(st.sampled_from(NAMES))):
        holders.setdefault(draw(PODS), []).append(name)
    containers = [
        ContainerDevices(pod=pod_named(pod), container="main", resource=GPU, devices=device_ids("".join(names)))
        for pod, names in holders.items()
    ]
    return listing(*containers, pods=sorted(draw(st.sets(PODS))))


def held(ledger: Ledger) -> Counter[str]:
    return Counter(device for entry in ledger.entries.values() for device in entry.devices)


@settings(max_examples=examples(80), deadline=None)
@given(HISTORIES, st.integers(0, 5))
def test_replaying_the_journal_gives_the_ledger(history: list[Record], history_max: int) -> None:
    """What was written record by record is read as the ledger that was kept record by record."""
    ledger = Ledger()
    content, seal = encode_records([Opened()], 0)
    for record in history:
        ledger = apply_record(ledger, record, history_max)
        line, seal = encode_records([record], seal)
        content += line
    parsed = parse_journal(content)
    assert not parsed.damage
    assert replay(parsed.records, history_max) == ledger
    again = encode_records([open_record(ledger, "", "")], 0)[0]
    assert replay(parse_journal(again).records, history_max) == ledger


@settings(max_examples=examples(80), deadline=None)
@given(HISTORIES)
def test_the_index_is_kept_as_the_entries_are(history: list[Record]) -> None:
    """What is found by the index that goes along with a ledger is what a look through all its entries would find."""
    ledger = Ledger()
    for record in history:
        ledger = apply_record(ledger, record, 10)
        assert ledger.index == Ledger(entries=ledger.entries).index


@settings(max_examples=examples(80), deadline=None)
@given(HISTORIES)
def test_no_history_gives_a_device_two_holders(history: list[Record]) -> None:
    """Whatever is recorded, a device is held once at most."""
    assert all(count == 1 for count in held(replay(history, 10)).values())


@settings(max_examples=examples(100), deadline=None)
@given(HISTORIES, st.data())
def test_any_cut_and_any_flip_gives_a_state_that_was(history: list[Record], data: st.DataObject) -> None:
    """A damaged journal is read as one of the states it went through, and never silently as another one."""
    content = encode_records([Opened(), *history], 0)[0]
    position = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (content[:position], bytes(flipped)):
        recovered = recover_ledger(Found(current=damaged, previous=None), "", "", 10)
        whole = content[:position].count(b"\n")
        assert recovered.ledger == replay([Opened(), *history][:whole], 10)
        assert bool(recovered.damage) == (damaged != b"".join(content.splitlines(keepends=True)[:whole]) or not whole)


@settings(max_examples=examples(120), deadline=None)
@given(HISTORIES, st.lists(listings(), min_size=1, max_size=4), st.booleans())
def test_lists_leave_the_ledger_true(history: list[Record], words: list[PodListing], young: bool) -> None:
    """After any lists: what the kubelet shows is held, nothing is held twice, and no shown device was freed."""
    ledger = replay(history, 10)
    run = KubeletRun(identity="now", since_seconds=90.0 if young else -1000.0)
    absences: dict[int, Absence] = {}
    for number, word in enumerate(words):
        now = 100.0 + 40.0 * number
        before = ledger
        look = PodListPoll(
            listing=word,
            run=run,
            numbers_below=ledger.next_number,
            now_seconds=now,
            monotonic_seconds=now,
            free_after_seconds=30.0,
        )
        result = reconcile(ledger, look, absences)
        absences = dict(result.absences)
        for record in result.records:
            ledger = apply_record(ledger, record, 10)
        shown = {device for container in word.containers for device in container.devices}
        assert shown <= held(ledger).keys()
        assert all(count == 1 for count in held(ledger).values())
        freed = held(before).keys() - held(ledger).keys()
        assert not freed & shown
        if number == 0:
            assert not freed


@settings(max_examples=examples(80), deadline=None)
@given(HISTORIES, HISTORIES)
def test_joining_loses_and_doubles_nothing(earlier: list[Record], later: list[Record]) -> None:
    """What the journal held and what was learnt without it are both held, each device once."""
    recovered, present = replay(earlier, 10), replay(later, 10)
    joined = merge_ledgers(recovered, present, 10)
    assert held(joined).keys() == held(recovered).keys() | held(present).keys()
    assert all(count == 1 for count in held(joined).values())
    assert len(set(joined.entries)) == len(joined.entries)


@settings(max_examples=examples(80), deadline=None)
@given(HISTORIES, DEVICES, st.none() | listings())
def test_only_doubtful_devices_are_refused(history: list[Record], asked: str, word: PodListing | None) -> None:
    """What this run of the kubelet has shown or asked for is never in its way."""
    ledger = replay(history, 10)
    run = KubeletRun(identity="now", since_seconds=-1000.0)
    devices = device_ids(asked)
    refusal = decide_refusal(find_holders(ledger, devices, run), devices, word, run, 100.0, 30.0)
    if refusal is not None:
        assert refusal.device in find_doubtful(ledger, run)
        assert refusal.device in devices
