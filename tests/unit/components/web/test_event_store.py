"""Events of earlier lives of the agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError
from msgspec.structs import replace

from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.event_store import KEPT, decode_events, encode_events


def event(seq: int, text: str = "something", cause: int | None = None, value: object = None) -> EventRecord:
    return EventRecord(seq=seq, time_seconds=float(seq), type="T", source="s", value=value, cause=cause, text=text)


def test_events_are_numbered_back_from_now() -> None:
    """Causes lead to the same events; what says nothing to a person is left out, and a chain goes on over it."""
    found = decode_events(encode_events([event(7), event(8, text="", cause=7), event(9, cause=8), event(12, cause=3)]))
    assert [(one.seq, one.cause, one.time_seconds) for one in found] == [
        (-3, None, 7.0),
        (-2, -3, 9.0),
        (-1, None, 12.0),
    ]


def test_what_an_earlier_life_told_is_marked() -> None:
    """By a field of its own, so that nobody has to know what a negative number means."""
    (found,) = decode_events(encode_events([event(1)]))
    assert found.before_restart
    assert not event(1).before_restart


def test_a_second_restart_takes_both_lives_along() -> None:
    """In their order, each with its own causes."""
    first = decode_events(encode_events([event(1), event(2, cause=1)]))
    second = decode_events(encode_events([*first, event(1), event(2, cause=1)]))
    assert [(one.seq, one.cause) for one in second] == [(-4, None), (-3, -4), (-2, None), (-1, -2)]


def test_a_large_value_is_left_out_and_the_sentence_stays() -> None:
    """The file stays small whatever an inventory weighs."""
    inventory = replace(event(2, value=["x"]), type="Inventory")
    small, large = decode_events(encode_events([event(1, value={"gpu": "a"}), inventory]))
    assert (small.value, large.value, large.text) == ({"gpu": "a"}, None, "something")


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"seq": 1}]'])
def test_what_is_no_list_of_events_is_refused(content: bytes) -> None:
    """Whatever else it is."""
    with pytest.raises(DecodeError):
        decode_events(content)


@given(st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 300)), max_size=300))
def test_the_past_is_bounded_and_in_order(events: list[tuple[bool, int | None]]) -> None:
    """Whatever led to what, even in a circle: a cause is an event that is there, or none."""
    found = decode_events(
        encode_events([event(seq, text="t" if told else "", cause=cause) for seq, (told, cause) in enumerate(events)])
    )
    assert len(found) == min(KEPT, sum(told for told, _ in events))
    assert [one.seq for one in found] == list(range(-len(found), 0))
    assert all(one.cause is None or -len(found) <= one.cause < 0 for one in found)
