"""The rhythm of looks, and what cannot be heard."""

from nodeagent.components.health.decide import Moment
from nodeagent.components.health.poll_schedule import MonitoringGaps, PollIntervals, PollKind, PollSchedule

PACE = PollIntervals(look_seconds=10.0, sample_seconds=1.0)


def take(looks: PollSchedule, at: float, *, age: float = 0.0) -> PollKind:
    return looks.take(1000.0 + at - age, Moment(at=at, wall=1000.0 + at), PACE)


def test_looks_keep_their_rhythm_and_come_between_when_asked_for() -> None:
    """The first sample is looked at, then one each ten seconds; what is asked for does not shift the rhythm."""
    looks = PollSchedule(0.0)
    begun = [looks.has_begun]
    assert [take(looks, at) for at in (1.0, 2.0)] == [PollKind.DUE, PollKind.NONE]
    assert [*begun, looks.has_begun] == [False, True]
    looks.is_asked = True
    assert [take(looks, at) for at in (3.0, 4.0)] == [PollKind.EXTRA, PollKind.NONE]
    looks.is_asked = True
    assert [take(looks, at) for at in (10.5, 11.5)] == [PollKind.DUE, PollKind.NONE]


def test_the_rhythm_begins_anew_with_a_reset() -> None:
    """So that two polls after a reset take one pause, and not up to two."""
    looks = PollSchedule(0.0)
    take(looks, 1.0)
    looks.is_renewed = looks.is_asked = True
    assert [take(looks, at) for at in (7.0, 8.0, 11.0, 17.0)] == [
        PollKind.DUE,
        PollKind.NONE,
        PollKind.NONE,
        PollKind.DUE,
    ]


def test_a_sample_of_long_ago_proves_nothing() -> None:
    """It is neither looked at nor a sign that readings come; what was asked for is still asked for."""
    looks = PollSchedule(0.0)
    looks.is_asked = True
    assert take(looks, 20.0, age=10.5) is PollKind.NONE
    assert looks.is_asked
    assert looks.is_missed(20.0, PACE)
    take(looks, 21.0)
    assert not looks.is_missed(30.9, PACE)
    assert looks.is_missed(31.0, PACE)
    assert PollIntervals(look_seconds=1.0, sample_seconds=5.0).patience_seconds == 10.0


def test_each_ear_is_named_once_while_it_is_deaf() -> None:
    """A reason that is no news says so, and so does one that ends."""
    deafness = MonitoringGaps()
    assert not deafness.note("events", "")
    assert deafness.note("events", "no events")
    assert not deafness.note("events", "no events")
    assert deafness.note("samples", "no readings")
    assert str(deafness) == "no events; no readings"
    assert deafness.note("events", "")
    assert str(deafness) == "no readings"
