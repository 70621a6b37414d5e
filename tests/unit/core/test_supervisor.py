from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.errors import (
    ComponentNotRunning,
    ComponentUnknown,
    ConditionUnknown,
    GateUnknown,
    SpecsBroken,
    VitalComponentFailed,
)
from nodeagent.core.life.backoff import BackoffSettings
from nodeagent.core.life.budget import BudgetSettings
from nodeagent.core.life.component import ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import ComponentReport, Degraded, Phase
from nodeagent.core.life.runner import RunnerSettings
from nodeagent.core.life.supervisor import COMPONENT_FAILED, Supervisor, SupervisorSettings, check_specs
from tests.support.components import ComponentFailed, Diary, Steady
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

SETTINGS = SupervisorSettings(
    runner=RunnerSettings(
        backoff=BackoffSettings(first_seconds=1, limit_seconds=8, jitter_low=1, stable_seconds=60),
        budget=BudgetSettings(allowed=3, window_seconds=600),
    ),
    stop_total_seconds=10,
)


class House:
    """A supervisor with everything round it."""

    def __init__(self, clock: FakeClock, *specs: ComponentSpec, settings: SupervisorSettings = SETTINGS) -> None:
        self.bus = Bus(clock)
        self.gates = Gates(["a", "b"], clock=clock)
        self.conditions = Conditions(self.bus, clock, [ComponentFailed()])
        self.supervisor = Supervisor(specs, self.gates, self.bus, self.conditions, clock, settings, rng=Random(1))

    def report(self, name: str) -> ComponentReport:
        envelope = self.bus.latest(ComponentReport, name)
        assert envelope is not None
        return envelope.value

    def phase(self, name: str) -> Phase:
        return self.report(name).phase

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.supervisor.run)
            await anyio.sleep(0.001)
            yield
            self.supervisor.stop()


@pytest.fixture
def diary() -> Diary:
    return Diary()


def spec(name: str, diary: Diary, *, build: dict[str, Any] | None = None, **treatment: Any) -> ComponentSpec:
    options = build or {}
    return ComponentSpec(name, lambda: Steady(name, diary, **options), **treatment)


async def test_component_starts_when_its_gates_are_open(clock: FakeClock, diary: Diary) -> None:
    """A component waits for what it needs, and says for which gates."""
    house = House(
        clock,
        spec("late", diary, needs=("a", "b")),
        spec("one", diary, build={"starts_after": 5}, opens=("a",)),
        spec("two", diary, build={"starts_after": 7}, opens=("b",)),
    )
    async with house.running():
        assert house.report("late").waiting_for == ("a", "b")
        await anyio.sleep(6)
        assert house.report("late").waiting_for == ("b",)
        assert house.phase("two") == Phase.STARTING
        await anyio.sleep(2)
        assert house.phase("late") == Phase.RUNNING
        assert house.report("late").waiting_for == ()
    assert diary.times("late", "begun") == [7]


async def test_gates_say_the_truth_after_a_crash_and_stop_nobody(clock: FakeClock, diary: Diary) -> None:
    """A crash closes the gates its component opened; whoever is past them runs on."""
    house = House(
        clock,
        spec("opener", diary, build={"crashes": [OSError("gone")], "crashes_after": 5}, opens=("a",)),
        spec("user", diary, needs=("a",)),
    )
    async with house.running():
        assert house.gates.is_open("a")
        await anyio.sleep(5.5)
        assert not house.gates.is_open("a")
        await anyio.sleep(1)
        assert house.gates.is_open("a")
    assert diary.times("user", "begun") == [0]


async def test_crash_restarts_one_with_growing_pauses_and_touches_no_sibling(clock: FakeClock, diary: Diary) -> None:
    """Pauses double from the first; the sibling never notices."""
    crashes: list[Exception] = [OSError("x"), ExceptionGroup("g", [KeyError("y"), OSError("z")]), ValueError("w\nv")]
    house = House(clock, spec("shaky", diary, build={"crashes": crashes}), spec("calm", diary))
    async with house.running():
        assert house.report("shaky").last_error == "OSError: x"
        assert house.phase("shaky") == Phase.BACKING_OFF
        await anyio.sleep(2)
        assert house.report("shaky").last_error == "KeyError: 'y' (and 1 more)"
        await anyio.sleep(6)
        assert (house.phase("shaky"), house.report("shaky").restarts) == (Phase.RUNNING, 3)
        assert house.report("shaky").last_error == "ValueError: w v"
    assert diary.times("shaky", "begun") == [0, 1, 3, 7]
    assert diary.times("calm", "begun") == [0]


async def test_past_its_budget_a_component_stays_down_and_says_so(clock: FakeClock, diary: Diary) -> None:
    """The condition names the component; the rest goes on until it is told to stop."""
    crashes: list[Exception] = [OSError(str(number)) for number in range(9)]
    house = House(clock, spec("shaky", diary, build={"crashes": crashes}), spec("calm", diary))
    async with house.running():
        await anyio.sleep(500)
        assert [(each.key, each.detail) for each in house.conditions.active()] == [("shaky", "OSError: 3")]
        assert [report.phase for report in house.supervisor.reports()] == [Phase.FAILED, Phase.RUNNING]
    assert len(diary.times("shaky", "begun")) == 4
    assert house.phase("shaky") == Phase.FAILED


async def test_vital_component_past_its_budget_ends_the_process_in_order(clock: FakeClock, diary: Diary) -> None:
    """The others stop in their stages before the error leaves run()."""
    crashes: list[Exception] = [OSError(str(number)) for number in range(9)]
    house = House(
        clock,
        spec("heart", diary, build={"crashes": crashes}, vital=True),
        spec("other", diary, build={"stops_after": 2}),
    )
    with pytest.raises(VitalComponentFailed, match=r"'heart' crashed 4 times within 600 s, last with OSError: 3"):
        await house.supervisor.run()
    assert diary.times("other", "ended") == [9]
    assert house.phase("other") == Phase.STOPPED


async def test_returning_unasked_is_a_crash(clock: FakeClock, diary: Diary) -> None:
    """A component that ends by itself is restarted, and its report says why."""

    class Quitter:
        name = "quitter"

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            task_status.started()
            await anyio.sleep(1)

    house = House(clock, ComponentSpec("quitter", Quitter))
    async with house.running():
        await anyio.sleep(1.5)
        assert house.report("quitter").last_error == (
            "ComponentReturned: component 'quitter' returned from run() without being told to stop"
        )
        await anyio.sleep(1)
        assert house.report("quitter").restarts == 1


async def test_build_that_fails_is_a_crash(clock: FakeClock) -> None:
    """A constructor that raises is treated like a run that raises."""

    def build() -> Steady:
        raise RuntimeError("no such library")

    house = House(clock, ComponentSpec("x", build))
    async with house.running():
        assert house.report("x").last_error == "RuntimeError: no such library"


async def test_stages_stop_in_order_and_the_last_started_first(clock: FakeClock, diary: Diary) -> None:
    """A stage begins when the one before has ended; within it the order of starting is reversed."""
    slow = {"stops_after": 1}
    house = House(
        clock,
        spec("web", diary, build=slow, stop_stage=2),
        spec("early", diary, build=slow, stop_stage=1, opens=("a",)),
        spec("later", diary, build=slow, stop_stage=1, needs=("a",)),
        spec("never", diary, stop_stage=1, needs=("b",)),
        spec("blocked", diary, build={"starts_after": 1000}, stop_stage=1, opens=("b",)),
    )
    async with house.running():
        await anyio.sleep(1)
    assert diary.of("cancelled") == ["later", "blocked", "early", "web"]
    assert [round(time) for time in diary.times("web", "cancelled") + diary.times("web", "ended")] == [2, 3]
    assert {report.phase for report in house.supervisor.reports()} == {Phase.STOPPED}


async def test_late_stopper_is_named_and_holds_up_its_stage_no_longer_than_its_limit(
    clock: FakeClock, diary: Diary, log_lines: list[dict[str, Any]]
) -> None:
    """The next stage begins at the limit; run() still waits for the late one."""
    house = House(
        clock,
        spec("stubborn", diary, build={"stops_after": 30}, stop_stage=1, stop_timeout_seconds=2),
        spec("web", diary, stop_stage=2),
    )
    async with house.running():
        began = anyio.current_time()
    assert diary.times("web", "cancelled") == [began + 2]
    assert diary.times("stubborn", "ended") == [began + 30]
    (line,) = [line for line in log_lines if line["event"] == "stop_stage_overran"]
    assert (line["stage"], line["still_running"]) == (1, ["stubborn"])


async def test_all_stages_together_keep_the_total(clock: FakeClock, diary: Diary) -> None:
    """However many stages are late, the last is told to stop within the total."""
    lazy = {"stops_after": 100}
    house = House(
        clock,
        *(spec(f"lazy{stage}", diary, build=lazy, stop_stage=stage, stop_timeout_seconds=6) for stage in range(4)),
    )
    async with house.running():
        began = anyio.current_time()
    assert diary.times("lazy3", "cancelled") == [began + 10]


async def test_crash_while_stopping_is_logged_and_not_restarted(
    clock: FakeClock, diary: Diary, log_lines: list[dict[str, Any]]
) -> None:
    """Clean-up that fails neither restarts the component nor hides itself."""

    def fail() -> None:
        raise OSError("could not unlink")

    house = House(clock, spec("x", diary, build={"on_stop": fail}))
    async with house.running():
        pass
    assert house.phase("x") == Phase.STOPPED
    assert house.report("x").last_error == "OSError: could not unlink"
    assert "component_crashed_while_stopping" in [line["event"] for line in log_lines]


async def test_component_that_swallows_the_stop_is_stopped_all_the_same(clock: FakeClock) -> None:
    """Returning once told to stop is a proper end."""

    class Polite:
        name = "polite"

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            task_status.started()
            with suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep_forever()

    house = House(clock, ComponentSpec("polite", Polite))
    async with house.running():
        pass
    assert house.report("polite").last_error is None


async def test_injected_exception_crashes_only_its_component(clock: FakeClock, diary: Diary) -> None:
    """The fault command's error is reported as the component's own, and a restart follows."""
    house = House(clock, spec("x", diary), spec("y", diary))
    async with house.running():
        house.supervisor.inject("x", RuntimeError("injected"))
        await anyio.sleep(0.5)
        assert house.report("x").last_error == "RuntimeError: injected"
        with pytest.raises(ComponentNotRunning, match="backing_off"):
            house.supervisor.inject("x", RuntimeError("again"))
        await anyio.sleep(1)
        assert house.phase("x") == Phase.RUNNING
        with pytest.raises(ComponentUnknown, match="declared components: x, y"):
            house.supervisor.inject("z", RuntimeError("nobody"))
    assert len(diary.times("y", "begun")) == 1


async def test_degraded_is_said_by_the_component_and_forgotten_at_its_end(clock: FakeClock, diary: Diary) -> None:
    """A component's own word changes its phase, either way; a crash takes the word back."""
    house = House(clock, spec("x", diary, build={"starts_after": 1}))
    async with house.running():
        house.bus.publish_state(Degraded("no API server"), source="x", key="x")
        house.bus.publish_state(Degraded("not ours"), source="z", key="z")
        await anyio.sleep(0.5)
        assert house.phase("x") == Phase.STARTING
        await anyio.sleep(1)
        assert (house.phase("x"), house.report("x").degraded_reason) == (Phase.DEGRADED, "no API server")
        since = house.report("x").since
        house.bus.publish_state(Degraded("no network"), source="x", key="x")
        await anyio.sleep(1)
        assert (house.report("x").degraded_reason, house.report("x").since) == ("no network", since)
        house.bus.retract_state(Degraded, "x")
        await anyio.sleep(1)
        assert (house.phase("x"), house.report("x").degraded_reason) == (Phase.RUNNING, None)
        house.bus.publish_state(Degraded("again"), source="x", key="x")
        house.supervisor.inject("x", OSError("crash"))
        await anyio.sleep(3)
        assert house.phase("x") == Phase.RUNNING


async def test_cancelling_run_stops_everything_at_once(clock: FakeClock, diary: Diary) -> None:
    """The forced stop does not go through the stages."""
    house = House(clock, spec("x", diary, stop_stage=1, build={"stops_after": 1}), spec("y", diary, stop_stage=2))
    async with anyio.create_task_group() as tasks:
        await tasks.start(house.supervisor.run)
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert diary.times("x", "cancelled") == diary.times("y", "cancelled") == [1]
    assert {report.phase for report in house.supervisor.reports()} == {Phase.STOPPED}


async def test_tasks_bear_the_names_of_components(clock: FakeClock) -> None:
    """Introspection shows components, not coroutines."""
    seen: list[str | None] = []

    class Curious:
        name = "curious"

        async def run(self, *, task_status: TaskStatus[None]) -> None:
            seen.append(anyio.get_current_task().name)
            task_status.started()
            await anyio.sleep_forever()

    async with House(clock, ComponentSpec("curious", Curious)).running():
        pass
    assert seen == ["curious"]


@pytest.mark.parametrize(
    ("specs", "problem"),
    [
        ([("x", (), (), 0), ("x", (), (), 0)], "'x' is declared twice"),
        ([("x", ("a",), (), 0)], "'x' needs the gate 'a', which no component opens"),
        ([("x", (), ("a",), 0), ("y", (), ("a",), 0)], "'y' opens the gate 'a', which 'x' opens already"),
        ([("x", ("a",), ("b",), 0), ("y", ("b",), ("a",), 0)], "'x' waits for itself through the gate 'b'|'b'"),
        ([("x", (), ("a",), 1), ("y", ("a",), (), 2)], "'y' stops in stage 2, after 'x' whose gate 'a' it needs"),
    ],
)
async def test_contradictory_specs_are_refused(
    specs: list[tuple[str, tuple[str, ...], tuple[str, ...], int]], problem: str
) -> None:
    """What could never start, or would stop before its users, fails before anything starts."""
    diary = Diary()
    built = [spec(name, diary, needs=needs, opens=opens, stop_stage=stage) for name, needs, opens, stage in specs]
    with pytest.raises(SpecsBroken, match=problem):
        check_specs(built)


async def test_needs_over_several_ways_are_fine(diary: Diary) -> None:
    """Two gates behind which the same component stands are no circle."""
    check_specs(
        [
            spec("root", diary, opens=("r",)),
            spec("left", diary, needs=("r",), opens=("a",)),
            spec("right", diary, needs=("r", "a"), opens=("b",)),
            spec("top", diary, needs=("a", "b", "r")),
        ]
    )


async def test_supervisor_refuses_a_catalogue_without_its_condition(clock: FakeClock, diary: Diary) -> None:
    """The one condition the supervisor raises must be there from the start."""
    bus = Bus(clock)
    with pytest.raises(ConditionUnknown, match=COMPONENT_FAILED):
        Supervisor([], Gates([]), bus, Conditions(bus, clock, []), clock, SETTINGS)


async def test_supervisor_refuses_undeclared_gates(clock: FakeClock, diary: Diary) -> None:
    """A gate that is opened but never declared is found at once."""
    with pytest.raises(GateUnknown, match="'zzz'"):
        House(clock, spec("x", diary, opens=("zzz",)))
