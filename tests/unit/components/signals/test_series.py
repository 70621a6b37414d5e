"""Which events are written when: at once, within limits, counted rather than repeated, and not for ever."""

from collections import Counter
from functools import partial
from random import Random

from nodeagent.components.signals.component import RETRY
from nodeagent.components.signals.series import (
    AGAIN_SECONDS,
    AT_ONCE,
    FORGET_SECONDS,
    KEEP_SECONDS,
    NEW_MAX,
    PERIOD_SECONDS,
    SeriesStore,
)
from nodeagent.core.life.backoff import decide_delay
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import NodeEvent, PodEventCounts


def make_event(pod: str = "a", about: str = "79 GPU-0") -> NodeEvent:
    identity = PodIdentity(namespace="ml", name=pod, uid=f"uid-{pod}")
    return NodeEvent(reason="GPUXidError", note=about, about=about, pod=identity)


class Desk:
    """A store whose writes succeed at a time."""

    def __init__(self, seed: int = 1) -> None:
        self.store = SeriesStore(partial(decide_delay, RETRY, rng=Random(seed)))

    def note(self, now: float, *pods: str) -> None:
        for pod in pods:
            assert self.store.note(make_event(pod), 1000.0 + now, now)

    def write(self, now: float) -> list[tuple[str, int]]:
        """Write what is due: pods, with the number of times."""
        due = self.store.take_due(now)
        for each in due:
            self.store.note_written(each, now)
        return [(each.series.pod.name, each.series.count) for each in due]

    def fail(self, now: float, *, is_final: bool = False) -> int:
        """Have all that is due fail."""
        due = self.store.take_due(now)
        for each in due:
            self.store.note_failed(each, "no", now, is_final=is_final)
        return len(due)


def test_a_new_event_is_due_at_once_and_once() -> None:
    """With the time of the fault; nothing is left to wait for afterwards."""
    desk = Desk()
    desk.note(5.0, "a")
    (standing,) = desk.store.take_due(5.0)
    series = standing.series
    assert (series.first_seconds, series.last_seconds, series.is_written) == (1005.0, 1005.0, False)
    assert desk.store.find_wait(5.0) == 0.001
    assert desk.write(5.0) == [("a", 1)]
    assert (desk.write(5.0), desk.store.find_wait(5.0)) == ([], None)


def test_a_storm_is_one_event_with_a_count() -> None:
    """The first fault at once, those of the next seconds together, with the time of the last."""
    desk = Desk()
    desk.note(0.0, "a")
    assert desk.write(0.0) == [("a", 1)]
    for tick in range(1, 90):
        desk.note(tick / 10, "a")
        assert desk.write(tick / 10) == []
    assert desk.store.find_wait(9.0) == 1.0
    (standing,) = desk.store.take_due(AGAIN_SECONDS)
    assert (standing.series.is_written, standing.series.first_seconds, standing.series.last_seconds) == (
        True,
        1000.0,
        1008.9,
    )
    assert desk.write(AGAIN_SECONDS) == [("a", 90)]
    desk.note(100.0, "a")
    assert desk.write(100.0) == [("a", 91)], "after a quiet time at once"


def test_a_fault_during_the_write_is_not_lost() -> None:
    """The write has the number of its beginning."""
    desk = Desk()
    desk.note(0.0, "a")
    (standing,) = desk.store.take_due(0.0)
    desk.note(0.5, "a")
    desk.store.note_written(standing, 1.0)
    assert desk.write(1.0) == []
    assert desk.write(1.0 + AGAIN_SECONDS) == [("a", 2)]


def test_new_events_go_before_counts() -> None:
    """A pod may be gone soon; and no more requests are made at a time than `AT_ONCE`."""
    desk = Desk()
    desk.note(0.0, "a")
    desk.write(0.0)
    desk.note(1.0, "a")
    names = [f"n{number:02}" for number in range(AT_ONCE)]
    for number, name in enumerate(names):
        desk.note(20.0 + number, name)
    assert [name for name, _ in desk.write(60.0)] == names
    assert desk.write(60.0) == [("a", 2)]


def test_too_many_new_events_are_dropped() -> None:
    """Until the period is over; a known series goes on."""
    desk = Desk()
    desk.note(0.0, *(f"pod-{number}" for number in range(NEW_MAX)))
    assert not desk.store.note(make_event("late"), 0.0, 1.0)
    assert desk.store.note(make_event("pod-0"), 0.0, 1.0)
    assert desk.store.counts == PodEventCounts(dropped=1, waiting=NEW_MAX)
    assert desk.store.note(make_event("late"), 0.0, PERIOD_SECONDS)


def test_a_failed_write_is_tried_again_with_pauses() -> None:
    """Growing ones, up to half a minute, none shorter than a busy server's second; success ends the trouble."""
    desk = Desk()
    desk.note(0.0, "a")
    assert desk.fail(0.0) == 1
    assert desk.store.describe_trouble() == "no"
    pauses, now = [], 0.0
    for _ in range(6):
        wait = desk.store.find_wait(now)
        assert wait is not None
        pauses.append(wait)
        now += wait
        assert desk.fail(now) == 1
    longest = [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True)), pauses
    assert desk.write(now + 30.0) == [("a", 1)]
    assert desk.store.describe_trouble() == ""
    assert desk.store.counts == PodEventCounts(written=1, failed=7)


def test_a_server_that_is_away_is_not_asked_for_each_event() -> None:
    """After a round without success all wait, also new events; a success ends the pause."""
    desk = Desk()
    desk.note(0.0, "a", "b")
    desk.fail(0.0)
    desk.store.note_away(0.0)
    desk.note(0.5, "c")
    first = desk.store.find_wait(0.5)
    assert first is not None
    assert desk.store.take_due(0.5) == ()
    assert 0.5 <= first <= 1.5
    assert desk.fail(2.0) == 3
    desk.store.note_away(2.0)
    second = desk.store.find_wait(2.0)
    assert second is not None
    assert 2.0 <= second <= 4.0
    assert [name for name, _ in desk.write(6.0)] == ["a", "b", "c"]
    desk.note(6.0, "d")
    assert desk.write(6.0) == [("d", 1)]


def test_agents_that_were_refused_together_do_not_come_back_together() -> None:
    """Their first pauses alone fill the time from the shortest to the longest evenly."""
    desks = [Desk(seed) for seed in range(100)]
    for desk in desks:
        desk.note(0.0, "a")
        desk.fail(0.0)
        desk.store.note_away(0.0)
    waits = [wait for desk in desks if (wait := desk.store.find_wait(0.0)) is not None]
    tenths = Counter(int(10 * wait) for wait in waits)
    assert len(waits) == 100
    assert 1 <= min(waits) <= max(waits) <= RETRY.first_seconds
    assert max(tenths.values()) <= 30, tenths


def test_an_event_is_given_up_after_a_while() -> None:
    """Nobody looks for it any more; the condition goes with it."""
    desk = Desk()
    desk.note(0.0, "a")
    desk.fail(0.0)
    assert desk.store.forget_old(KEEP_SECONDS - 1) == ()
    (late,) = desk.store.forget_old(KEEP_SECONDS)
    assert late.series.pod.name == "a"
    assert desk.store.describe_trouble() == ""
    assert desk.store.counts == PodEventCounts(failed=1, dropped=1)


def test_a_final_refusal_is_not_asked_again() -> None:
    """The condition stays for a while, so that it is seen, and wakes the writer at its end."""
    desk = Desk()
    desk.note(0.0, "a")
    desk.fail(0.0, is_final=True)
    assert desk.store.counts == PodEventCounts(failed=1, dropped=1)
    assert (desk.store.describe_trouble(), desk.store.find_wait(1.0)) == ("no", KEEP_SECONDS - 1)
    desk.store.forget_old(KEEP_SECONDS)
    assert (desk.store.describe_trouble(), desk.store.find_wait(KEEP_SECONDS)) == ("", None)


def test_a_series_that_is_over_is_forgotten() -> None:
    """As the API server forgets the event; the next fault is a new event."""
    desk = Desk()
    desk.note(0.0, "a")
    desk.write(0.0)
    assert desk.store.forget_old(FORGET_SECONDS) == ()
    desk.note(FORGET_SECONDS, "a")
    assert desk.write(FORGET_SECONDS) == [("a", 1)]


def test_a_series_that_is_written_once_takes_no_repetition() -> None:
    """Neither before nor after the write."""
    store = SeriesStore(float, counts_repetitions=False)
    for now in (0.0, 1.0):
        assert store.note(make_event(), now, now)
    (due,) = store.take_due(2.0)
    assert due.series.count == 1
    store.note_written(due, 2.0)
    assert store.note(make_event(), 3.0, 3.0)
    assert store.take_due(1000.0) == ()
