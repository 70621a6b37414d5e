"""What is heard is told or counted, and what was counted is told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.log import repeats as log_repeats
from nodeagent.core.log.repeats import BURST, EVENTS_MAX, FIRST_SECONDS, LONGEST_SECONDS, Count, Repeats

HEARD = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from([0.0, 0.0, 0.0, 0.5, 4.0, 11.0, 1000.0]), st.booleans()), max_size=300
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Any:
    """Few enough that events are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_repeats, "EVENTS_MAX", 4)
        yield


@given(HEARD)
def test_everything_is_told_or_counted_once(heard: list[tuple[int, float, bool]]) -> None:
    """Of each event: lines told, and times that lines say it happened besides, are the times that it happened."""
    repeats, now = Repeats(), 0.0
    happened, told = dict.fromkeys(range(9), 0), dict.fromkeys(range(9), 0)
    for event, seconds, is_collected in heard:
        now += seconds
        is_new = happened[event] == 0
        happened[event] += 1
        count = repeats.hear(event, {"event": event}, now)
        assert count is not None or not is_new, "an event was lost at its first time"
        told[event] += 0 if count is None else 1 + count.more
        assert len(repeats) <= 4
        summaries = repeats.collect(now) if is_collected else repeats.take_forgotten()
        for summary in summaries:
            assert summary.counted.more > 0
            assert summary.counted.since <= now
            told[summary.line["event"]] += summary.counted.more
    for summary in repeats.close():
        told[summary.line["event"]] += summary.counted.more
    assert told == happened
    assert len(repeats) == 0
    assert repeats.close() == []


@given(st.integers(1, 5000), st.floats(0.001, 1.0))
def test_a_flood_is_a_few_lines(times: int, pause: float) -> None:
    """A burst, then one line a time that doubles, whatever its rate."""
    repeats = Repeats()
    lines = [repeats.hear("accept_failed", {}, number * pause) for number in range(times)]
    told = [line for line in lines if line is not None]
    assert len(told) <= BURST + 8 + times * pause / LONGEST_SECONDS


def test_a_flood_is_told_now_and_then_with_how_often_since_when() -> None:
    """The burst one by one, then a line after 10 s, 20 s more, 40 s more."""
    repeats = Repeats()
    told = {}
    for second in range(80):
        count = repeats.hear("e", {}, float(second))
        if count is not None:
            told[second] = count
    assert list(told) == [0, 1, 2, 3, 4, 10, 30, 70]
    assert told[10] == Count(5, 0.0)
    assert told[30] == Count(19, 10.0)
    assert told[70] == Count(39, 30.0)


def test_what_stops_is_told_to_its_end_and_begins_anew_after_a_quiet_time() -> None:
    """Without another event that would carry the number; then it is news again."""
    repeats = Repeats()
    for _ in range(BURST + 3):
        repeats.hear("e", {"gpu": 3}, 0.0)
    assert repeats.collect(FIRST_SECONDS / 2) == []
    ((line, count),) = repeats.collect(FIRST_SECONDS)
    assert (line, count) == ({"gpu": 3}, Count(3, 0.0))
    assert repeats.collect(FIRST_SECONDS + 1) == []
    assert len(repeats) == 1
    assert repeats.collect(4 * FIRST_SECONDS) == []
    assert len(repeats) == 0
    assert repeats.hear("e", {}, 5 * FIRST_SECONDS) == Count(0, 5 * FIRST_SECONDS)


def test_other_events_are_not_held_up_by_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own count, and each is told at its first time, more of them than are remembered too."""
    monkeypatch.setattr(log_repeats, "EVENTS_MAX", EVENTS_MAX)
    repeats = Repeats()
    for number in range(3 * EVENTS_MAX):
        repeats.hear("flood", {}, 0.0)
        assert repeats.hear(number, {}, 0.0) == Count(0, 0.0)
    assert len(repeats) == EVENTS_MAX
