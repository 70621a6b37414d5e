import time
from dataclasses import dataclass

import anyio
import pytest

from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import SystemClock
from nodeagent.core.durations import BOUNDS_SECONDS, Durations
from nodeagent.core.life.ticker import Tick, Ticker, until_beat
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_ticks_do_not_drift_with_the_work_between_them() -> None:
    """Work of any length under a period leaves the cadence as it is."""
    times: list[float] = []
    ticker = Ticker(1.0)
    async for tick in ticker:
        times.append(anyio.current_time())
        await anyio.sleep(0.3 + 0.1 * tick.number)
        if tick.number == 4:
            break
    assert times == [0, 1, 2, 3, 4]
    assert ticker.missed == 0


async def test_missed_ticks_are_skipped_and_counted() -> None:
    """After a long pause one tick comes at once, and the next when it is due."""
    seen: list[tuple[float, Tick]] = []
    ticker = Ticker(1.0)
    async for tick in ticker:
        seen.append((anyio.current_time(), tick))
        if tick.number == 1:
            await anyio.sleep(3.5)
        if tick.number == 5:
            break
    assert seen == [(0, Tick(0, 0)), (1, Tick(1, 0)), (4.5, Tick(4, 2)), (5, Tick(5, 0))]
    assert ticker.missed == 2


async def test_tickers_that_begin_at_different_times_wake_together() -> None:
    """The first tick comes at once; the next ones at multiples of the period, so that all parts share a waking."""
    times: list[float] = []
    await anyio.sleep(0.4)
    async for tick in Ticker(1.0):
        times.append(anyio.current_time())
        if tick.number == 3:
            break
    assert times == [0.4, 1, 2, 3]


async def test_whoever_sleeps_until_the_beat_wakes_on_it() -> None:
    """A part that looks now and then joins the others; one that wakes a hair early does not look twice."""
    assert until_beat(0.75) == 0.75
    await anyio.sleep(0.4)
    assert until_beat(0.75) == pytest.approx(0.35)
    await anyio.sleep(0.34)
    assert until_beat(0.75) == pytest.approx(0.76)
    assert until_beat(0) == 0


def test_period_must_be_above_zero() -> None:
    """A cadence of nothing would keep the loop to itself."""
    with pytest.raises(ValueError, match="above zero"):
        Ticker(0)


@dataclass(frozen=True)
class Said:
    what: str


async def test_each_change_wakes_and_nothing_is_listened_to_after_the_end(clock: FakeClock) -> None:
    """Who is woken looks by itself; cancelled, the waker has left the bus."""
    bus, waker = Bus(clock), Waker()
    woken = 0

    async def sleep_and_count() -> None:
        nonlocal woken
        while True:
            await waker.wait()
            woken += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waker.follow, bus.listen(Said, client="a part"))
        tasks.start_soon(sleep_and_count)
        await anyio.sleep(1)
        assert woken == 0
        bus.publish_fact(Said("once"), source="test")
        await anyio.sleep(1)
        bus.publish_fact(Said("again"), source="test")
        await anyio.sleep(1)
        assert woken == 2
        assert [each.client for each in bus.statistics().listeners] == ["a part"]
        tasks.cancel_scope.cancel()
    assert bus.statistics().listeners == ()


async def test_a_wake_up_that_comes_before_the_sleep_is_remembered() -> None:
    waker = Waker()
    waker.wake()
    waker.wake()
    await waker.wait()
    with anyio.move_on_after(1) as waiting:
        await waker.wait()
    assert waiting.cancelled_caught


@pytest.mark.parametrize(("seconds", "place"), [(0.0, 0), (0.5, 0), (0.500001, 1), (1.0, 1), (2.0, 2), (1e9, 2)])
def test_each_is_counted_once_under_the_first_bound_that_holds_it(seconds: float, place: int) -> None:
    """A bound belongs to what is below it, and what is beyond all has a place of its own."""
    durations = Durations((0.5, 1.0))
    durations.observe(seconds)
    assert durations.counts == tuple(int(place == number) for number in range(3))
    assert durations.sum_seconds == seconds


def test_sums_and_counts_grow() -> None:
    """Nothing is lost from one to the next."""
    durations = Durations()
    for _ in range(10):
        durations.observe(0.0002)
    assert sum(durations.counts) == 10
    assert durations.sum_seconds == pytest.approx(0.002)


def test_bounds_rise() -> None:
    """Otherwise the search for a place would go astray."""
    assert list(BOUNDS_SECONDS) == sorted(set(BOUNDS_SECONDS))


def test_system_clock_reads_the_machine_s_clocks() -> None:
    """Both clocks lie between two readings of the machine's own."""
    clock = SystemClock()
    assert time.monotonic() <= clock.monotonic() <= time.monotonic()
    assert time.time() <= clock.wall() <= time.time()
