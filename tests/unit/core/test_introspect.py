import anyio
import pytest

from nodeagent.core.introspect import Introspection, parse_resident_bytes, summarise_lag
from nodeagent.core.values import LoopLag
from tests.support.virtual_time import FakeClock


def test_lag_is_summed_up_by_nearest_rank() -> None:
    """Percentiles are samples that really were."""
    assert summarise_lag([]) == LoopLag(0, 0, 0, 0)
    assert summarise_lag([0.2]) == LoopLag(0.2, 0.2, 0.2, 1)
    assert summarise_lag([float(number) for number in range(101)]) == LoopLag(50, 99, 100, 101)


@pytest.mark.virtual_time
async def test_lag_is_sampled_over_a_window(clock: FakeClock) -> None:
    """On a loop that is never late every sample is zero, and old samples go."""
    introspection = Introspection(period_seconds=1, window_samples=5)
    async with anyio.create_task_group() as tasks:
        await tasks.start(introspection.run)
        await anyio.sleep(3.5)
        assert introspection.lag() == LoopLag(0, 0, 0, 3)
        await anyio.sleep(60)
        assert introspection.lag().samples == 5
        tasks.cancel_scope.cancel()


async def test_snapshot_shows_tasks_threads_descriptors_and_memory() -> None:
    """What a person asks first about a process that misbehaves."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever, name="sleeper")
        snapshot = Introspection().snapshot()
        tasks.cancel_scope.cancel()
    assert "sleeper" in snapshot.tasks
    assert "MainThread" in snapshot.threads
    assert snapshot.descriptors >= 3
    assert snapshot.memory_bytes > 1_000_000


def test_resident_memory_is_the_second_field_in_pages() -> None:
    """The format of /proc/self/statm."""
    assert parse_resident_bytes("100 20 3 4 0 5 0\n", 4096) == 81920
