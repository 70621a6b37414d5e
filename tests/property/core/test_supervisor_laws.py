from random import Random

import anyio
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import BackoffSettings
from nodeagent.core.life.budget import BudgetSettings
from nodeagent.core.life.component import ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.runner import RunnerSettings
from nodeagent.core.life.supervisor import Supervisor, SupervisorSettings
from tests.property.core.test_bus_laws import run_virtually
from tests.support.components import ComponentFailed, Diary, Steady
from tests.support.virtual_time import FakeClock


def supervisor(specs: list[ComponentSpec], gates: list[str], budget: BudgetSettings, seed: int) -> Supervisor:
    clock = FakeClock()
    bus = Bus(clock)
    runner = RunnerSettings(BackoffSettings(first_seconds=1, limit_seconds=20, stable_seconds=30), budget)
    conditions = Conditions(bus, clock, [ComponentFailed()])
    settings = SupervisorSettings(runner)
    return Supervisor(specs, Gates(gates), bus, conditions, clock, settings, rng=Random(seed))


@given(
    allowed=st.integers(0, 4),
    window_seconds=st.integers(1, 200),
    runs=st.lists(st.integers(0, 60), max_size=20),
    seed=st.integers(0, 100),
)
def test_supervisor_never_exceeds_its_budget(allowed: int, window_seconds: int, runs: list[int], seed: int) -> None:
    """Whenever a component starts again, no window before holds more crashes than allowed."""
    diary = Diary()
    lengths = list(runs)

    def build() -> Steady:
        if not lengths:
            return Steady("x", diary)
        return Steady("x", diary, crashes=[OSError("crash")], crashes_after=lengths.pop(0))

    async def scenario() -> None:
        budget = BudgetSettings(allowed=allowed, window_seconds=window_seconds)
        house = supervisor([ComponentSpec("x", build)], [], budget, seed)
        async with anyio.create_task_group() as tasks:
            await tasks.start(house.run)
            await anyio.sleep(10_000)
            house.stop()

    run_virtually(scenario)
    begun, ended = diary.times("x", "begun"), diary.times("x", "ended")
    crashes = ended[: len(runs)] if len(ended) > len(runs) else ended
    for restarts in range(1, len(begun)):
        past = crashes[:restarts]
        assert sum(crash > past[-1] - window_seconds for crash in past) <= allowed
    if len(begun) <= len(runs):
        assert sum(crash > crashes[-1] - window_seconds for crash in crashes) == allowed + 1


@given(starts_after=st.lists(st.integers(0, 5), min_size=1, max_size=6), is_chain=st.booleans(), seed=st.integers(0, 9))
def test_supervisor_stops_in_reverse_order_of_start(starts_after: list[int], is_chain: bool, seed: int) -> None:
    """Within a stage the component that began last is told to stop first, whatever decided the order."""
    diary = Diary()
    order = Random(seed).sample(range(len(starts_after)), len(starts_after))
    specs = []
    for position, number in enumerate(order):
        specs.append(
            ComponentSpec(
                name=str(number),
                build=lambda number=number: Steady(str(number), diary, starts_after=starts_after[number]),  # type: ignore[misc]  # bound per turn
                needs=(f"g{order[position - 1]}",) if is_chain and position else (),
                opens=(f"g{number}",),
            )
        )

    async def scenario() -> None:
        house = supervisor(specs, [f"g{number}" for number in order], BudgetSettings(), seed)
        async with anyio.create_task_group() as tasks:
            await tasks.start(house.run)
            await anyio.sleep(100)
            house.stop()

    run_virtually(scenario)
    assert diary.of("cancelled") == diary.of("begun")[::-1]
