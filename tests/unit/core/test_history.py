"""What the history keeps, counts and forgets."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, defstruct

from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.history import History


class Fact(Struct, frozen=True):
    name: str


class Other(Struct, frozen=True):
    name: str


class Changing(Struct):
    """Cannot be looked up."""

    name: str


def seal(seq: int, value: object, cause: int | None = None) -> Envelope[Any]:
    return Envelope(value, "", seq, float(seq), "test", cause)


def seqs(history: History) -> list[int]:
    return [envelope.seq for envelope in history.envelopes()]


def test_a_busy_topic_holds_a_share() -> None:
    """An eighth of the ring; the rest stays for the others."""
    history = History(64)
    history.add(seal(0, Other("rare")))
    for seq in range(1, 100):
        history.add(seal(seq, Fact(str(seq))))
    assert seqs(history) == [0, *range(92, 100)]


def test_many_topics_share_the_ring() -> None:
    """Past the limit the oldest of all goes."""
    history = History(8)
    for seq in range(20):
        history.add(seal(seq, defstruct(f"Topic{seq}", [])()))
    assert seqs(history) == list(range(12, 20))


def test_a_fact_that_repeats_itself_is_counted() -> None:
    """The first and the newest stay, the newest says how many were between."""
    history = History(64)
    for seq in range(100):
        history.add_fact(seal(seq, Fact("again")))
    assert seqs(history) == [0, 99]
    assert [envelope.repeats for envelope in history.envelopes()] == [0, 98]


def test_several_facts_in_turn_push_nothing_out() -> None:
    """Eight GPUs that each say the same again and again are sixteen envelopes."""
    history = History(512)
    history.add_fact(seal(0, Fact("the cause")))
    for seq in range(1, 1001):
        history.add_fact(seal(seq, Fact(f"GPU {seq % 8}")))
    assert seqs(history) == [0, *range(1, 9), *range(993, 1001)]


def test_a_fact_that_was_pushed_out_begins_anew() -> None:
    """First or newest: what is forgotten is not counted on."""
    history = History(16)
    history.add_fact(seal(1, Fact("a")))
    history.add_fact(seal(2, Fact("a")))
    history.add_fact(seal(3, Fact("b")))
    history.add_fact(seal(4, Fact("a")))
    assert seqs(history) == [3, 4]
    history.add_fact(seal(5, Fact("c")))
    history.add_fact(seal(6, Fact("d")))
    history.add_fact(seal(7, Fact("a")))
    assert seqs(history) == [6, 7]
    assert all(envelope.repeats == 0 for envelope in history.envelopes())


def test_what_cannot_be_compared_is_kept_each_time() -> None:
    """Such a value is no reason to fail, when it comes or when it goes."""
    history = History(16)
    for seq in range(5):
        history.add_fact(seal(seq, Changing("again")))
    assert seqs(history) == [3, 4]


def test_what_led_to_something_wrong_stays_as_long_as_it_is_wrong() -> None:
    history = History(64)
    history.add_fact(seal(0, Fact("root")))
    history.add_fact(seal(1, Fact("effect"), cause=0))
    history.keep([1, 999])
    for seq in range(2, 50):
        history.add_fact(seal(seq, Fact(str(seq))))
    assert seqs(history)[:2] == [0, 1]
    history.keep([])
    for seq in range(50, 60):
        history.add_fact(seal(seq, Fact(str(seq))))
    assert seqs(history) == list(range(52, 60))


def test_a_repetition_that_is_a_cause_is_not_counted_away() -> None:
    """The one that is named as cause stays beside the first and the newest."""
    history = History(64)
    for seq in range(3):
        history.add_fact(seal(seq, Fact("again")))
    history.keep([2])
    for seq in range(3, 6):
        history.add_fact(seal(seq, Fact("again")))
    assert seqs(history) == [0, 2, 5]


@given(
    names=st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"), st.booleans()), max_size=80),
    kept=st.lists(st.integers(0, 80), max_size=10),
)
def test_the_history_stays_bounded_and_in_order(names: list[tuple[bool, str, bool]], kept: list[int]) -> None:
    history = History(16)
    for seq, (is_fact, name, keeps) in enumerate(names):
        envelope = seal(seq, Fact(name) if seq % 3 else Other(f"{name}{seq}"), cause=seq - 1 if seq else None)
        (history.add_fact if is_fact else history.add)(envelope)
        if keeps:
            history.keep(kept)
        assert seqs(history) == sorted(seqs(history))
        assert len(seqs(history)) <= 16
        assert seqs(history)[-1] == seq


def test_a_repeated_fact_that_was_kept_as_a_cause_is_forgotten_in_its_turn() -> None:
    """Neither the first nor the newest of its kind: these two stay known, and the fact is counted on."""
    history = History(24)
    for seq in (0, 1):
        history.add_fact(seal(seq, Fact("again")))
    history.keep([1])
    history.add_fact(seal(2, Fact("again")))
    history.keep([])
    for seq in (3, 4):
        history.add(seal(seq, Fact(str(seq))))
    assert seqs(history) == [2, 3, 4]
    history.add_fact(seal(5, Fact("again")))
    assert seqs(history)[-1] == 5
