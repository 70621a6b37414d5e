"""The last hour and day of a GPU: exact while they last, and of one size for ever."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.web.page.periods import HOUR, MEASURES, Period, PeriodHistory, Reading, Span, read_measures
from nodeagent.model.telemetry import NodeSample
from tests.support.nodes import make_sample
from tests.support.samples import make_uuid

SMALL = Span("small", 10, 4)


def of(*values: int | None) -> tuple[int | None, ...]:
    return (*values, *[None] * (MEASURES - len(values)))


def test_a_step_has_its_mean_and_its_highest() -> None:
    """Several readings of one step are one; what was not told is not counted."""
    period = Period(SMALL)
    for value, time in ((10, 100), (40, 103), (None, 105), (20, 109.9), (7, 110)):
        period.add(of(value), time)
    assert list(period.read(0)) == [Reading(10, 23, 40), Reading(11, 7, 7)]
    assert list(period.read(1)) == []


def test_what_no_hardware_has_is_no_reading() -> None:
    """A driver that subtracts more than there is tells almost 2^64 bytes; the page goes on with what it had."""
    book, sample = PeriodHistory(), make_sample(0)
    wrong = replace(sample, memory_used_bytes=2**64 - (1 << 20), gpu_utilization_percent=2**32 - 1)
    for time, each in enumerate((sample, wrong)):
        book.add(NodeSample(time_seconds=float(time), gpus=(each,)))
    hour, _ = book.periods()[make_uuid(0)]
    told = read_measures(sample)
    assert [[one.highest for one in hour.read(measure)] for measure in range(MEASURES)] == [[each] for each in told]


def test_what_is_too_old_is_gone_and_gaps_are_gaps() -> None:
    """The ring holds its span and no more, also after a pause."""
    period = Period(SMALL)
    for time in (100, 110, 130):
        period.add(of(time), time)
    assert [one.step for one in period.read(0)] == [10, 11, 13]
    period.add(of(5), 150)
    assert [one.step for one in period.read(0)] == [13, 15]
    period.add(of(6), 1000)
    assert [one.step for one in period.read(0)] == [100]


def test_a_clock_that_is_set_back() -> None:
    """A little adds to the newest step; further than the span begins anew."""
    period = Period(SMALL)
    for value, time in ((1, 1000), (3, 985)):
        period.add(of(value), time)
    assert list(period.read(0)) == [Reading(100, 2, 3)]
    period.add(of(9), 100)
    assert list(period.read(0)) == [Reading(10, 9, 9)]


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 100)), min_size=1, max_size=60))
def test_it_says_what_a_list_of_all_readings_says(readings: list[tuple[int, int]]) -> None:
    """For readings in the order of time, the ring equals a plain count over its span."""
    ordered = sorted(readings, key=lambda one: one[0])
    period = Period(SMALL)
    for time, value in ordered:
        period.add(of(value), time)
    last = ordered[-1][0] // 10
    kept: dict[int, list[int]] = {}
    for time, value in ordered:
        if last - SMALL.steps < time // 10 <= last:
            kept.setdefault(time // 10, []).append(value)
    assert list(period.read(0)) == [Reading(step, sum(all_) // len(all_), max(all_)) for step, all_ in kept.items()]


def test_a_month_of_samples_takes_no_more_than_a_day() -> None:
    """Memory is bounded, and a GPU that is sampled no more is forgotten."""
    book, sample = PeriodHistory(), make_sample(0)
    for step in range(200):
        book.add(NodeSample(time_seconds=step * 60.0, gpus=(sample,)))
    tracemalloc.start()
    try:
        for step in range(200, 2000):
            book.add(NodeSample(time_seconds=step * 60.0, gpus=(sample,)))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert next(iter(book.periods()[make_uuid(0)])).span is HOUR
    book.add(NodeSample(time_seconds=1e6, gpus=(replace(sample, uuid=make_uuid(1)),)))
    assert list(book.periods()) == [make_uuid(1)]
