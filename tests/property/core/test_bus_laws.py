from dataclasses import dataclass

import anyio
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.channels.bus import Bus
from tests.support.virtual_time import FakeClock, VirtualTimeLoop


@dataclass(frozen=True)
class State:
    number: int


@dataclass(frozen=True)
class Fact:
    number: int


STEPS = st.lists(st.one_of(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), st.just("rest")), max_size=40)


@given(steps=STEPS, pause=st.integers(0, 3))
def test_the_newest_state_always_arrives(steps: list[tuple[str, int] | str], pause: int) -> None:
    """However publishing and reading interleave, a watcher ends with what is retained, key by key, never going back."""
    seen: dict[str, list[tuple[int, int]]] = {}
    expected: dict[str, int] = {}

    async def scenario() -> None:
        bus = Bus(FakeClock())

        async def read() -> None:
            with bus.watch(State, client="w", key=None) as changes:
                async for change in changes:
                    seen.setdefault(change.key, []).append((change.seq, change.value.number))
                    await anyio.sleep(pause)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for step in steps:
                if isinstance(step, str):
                    await anyio.sleep(1)
                else:
                    key, number = step
                    bus.publish_state(State(number), source="s", key=key)
                    expected[key] = number
            await anyio.sleep(100)
            tasks.cancel_scope.cancel()

    run_virtually(scenario)
    assert {key: changes[-1][1] for key, changes in seen.items()} == expected
    for changes in seen.values():
        assert changes == sorted(changes)


@given(bursts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), limit=st.integers(1, 5))
def test_overflow_drops_the_oldest_and_reports_the_exact_lag(bursts: list[tuple[int, int]], limit: int) -> None:
    """Taken and lost facts together are all that were published, in order, with the gaps where the lag says."""
    bus = Bus(FakeClock(), fact_queue_limit=limit)
    published = 0
    accounted = 0
    with bus.listen(Fact, client="l") as facts:
        for number_published, number_taken in [*bursts, (0, limit)]:
            for _ in range(number_published):
                bus.publish_fact(Fact(published), source="s")
                published += 1
            for _ in range(number_taken):
                fact = facts.take_nowait()
                if fact is None:
                    break
                accounted += fact.lag
                assert fact.value.number == accounted
                accounted += 1
        assert facts.take_nowait() is None
        (statistics,) = bus.statistics().listeners
    assert accounted == published == statistics.taken + statistics.lost


def run_virtually(scenario: object) -> None:
    anyio.run(scenario, backend_options={"loop_factory": VirtualTimeLoop})  # type: ignore[arg-type]  # any coroutine function
