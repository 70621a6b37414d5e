import anyio
import pytest

from nodeagent.core.life.ticker import Tick, Ticker, until_beat

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
