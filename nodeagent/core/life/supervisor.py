"""Starts, restarts and stops components; decides whether the process can go on.

Owns the runners of all components, the order of their starts, and the staged stop.
A crash restarts one component and touches no other. Past the crash budget a component stays down, with the condition
`component-failed` (keyed by its name); a vital component stops the whole agent in order, and `run` raises
`VitalComponentFailed`. Refuses specifications with contradictory gates or stop stages.
"""

from collections.abc import Sequence
from itertools import groupby
from random import Random, SystemRandom

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct, field

from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.errors import ComponentUnknown, ConditionUnknown, SpecsBroken, VitalComponentFailed
from nodeagent.core.life.component import ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import ComponentReport, Degraded
from nodeagent.core.life.runner import Runner, RunnerSettings
from nodeagent.core.log.lines import get_logger

COMPONENT_FAILED = "component-failed"
"""The condition of the supervisor, which the catalogue must define."""

_log = get_logger(component="supervisor")


class SupervisorSettings(Struct, frozen=True):
    """Settings of restarts and of the stop."""

    runner: RunnerSettings = field(default_factory=RunnerSettings)

    stop_total_seconds: float = 16.0
    """All stages together; below the 18 s of the hard exit, so that this limit comes first."""


class Supervisor:
    """Runs the components of one process; built inside the running event loop, for the loop's thread."""

    def __init__(
        self,
        specs: Sequence[ComponentSpec],
        gates: Gates,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        settings: SupervisorSettings,
        *,
        rng: Random | None = None,
    ) -> None:
        check_specs(specs)
        if not conditions.knows(COMPONENT_FAILED):
            raise ConditionUnknown(COMPONENT_FAILED)
        self._bus, self._conditions, self._settings = bus, conditions, settings
        drawn = rng or SystemRandom()
        self._runners = {spec.name: Runner(spec, gates, bus, clock, settings.runner, drawn) for spec in specs}
        self._started: list[Runner] = []
        self._stop_requested = anyio.Event()
        self._vital_failure: VitalComponentFailed | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run all components until `stop`, then stop in stages.

        Raises:
            VitalComponentFailed: A vital component was past the crash budget; raised after the staged stop.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_degraded, name="supervisor: degraded")
            for runner in self._runners.values():
                tasks.start_soon(self._supervise, runner, name=runner.spec.name)
            task_status.started()
            await self._stop_requested.wait()
            await self._stop_in_stages()
            tasks.cancel_scope.cancel()
        self._raise_vital_failure()

    def stop(self) -> None:
        """Begin the staged stop; `run` returns afterwards."""
        self._stop_requested.set()

    def inject(self, name: str, error: Exception) -> None:
        """End the present run of a component as if `error` had been raised; for tests and fault commands."""
        try:
            runner = self._runners[name]
        except KeyError:
            raise ComponentUnknown(name, tuple(self._runners)) from None
        runner.inject(error)

    def reports(self) -> tuple[ComponentReport, ...]:
        """Every component, in the order of declaration."""
        return tuple(runner.report for runner in self._runners.values())

    async def _supervise(self, runner: Runner) -> None:
        if await runner.run(lambda: self._note_started(runner)):
            return
        name, last_error = runner.spec.name, runner.report.last_error or "no error"
        self._conditions.set(COMPONENT_FAILED, key=name, detail=last_error)
        if runner.spec.vital:
            window_seconds = self._settings.runner.budget.window_seconds
            self._vital_failure = VitalComponentFailed(name, runner.budget.crashes, window_seconds, last_error)
            self.stop()

    def _note_started(self, runner: Runner) -> None:
        if runner not in self._started:
            self._started.append(runner)

    async def _follow_degraded(self) -> None:
        with self._bus.watch(Degraded, client="supervisor", key=None) as changes:
            async for change in changes:
                if change.key in self._runners:
                    self._runners[change.key].note_degraded(None if change.retracted else change.value.reason)

    def _raise_vital_failure(self) -> None:
        if self._vital_failure is not None:
            raise self._vital_failure

    async def _stop_in_stages(self) -> None:
        order = plan_stop(list(self._runners.values()), self._started)
        deadline = anyio.current_time() + self._settings.stop_total_seconds
        for stage in order:
            await _stop_together(stage, deadline)
            _log_late(stage)


async def _stop_together(stage: Sequence[Runner], deadline: float) -> None:
    """Stop the runners of one stage and wait for each up to its limit."""
    began = anyio.current_time()
    for runner in stage:
        runner.stop()
    for runner in stage:
        with anyio.CancelScope(deadline=min(deadline, began + runner.spec.stop_timeout_seconds)):
            await runner.ended.wait()


def _log_late(stage: Sequence[Runner]) -> None:
    late = [runner.spec.name for runner in stage if not runner.ended.is_set()]
    if late:
        _log.warning("stop_stage_overran", stage=stage[0].spec.stop_stage, still_running=late)


def plan_stop(runners: Sequence[Runner], started: Sequence[Runner]) -> list[list[Runner]]:
    """Stages in rising order; within a stage never started components first, then the last started first."""
    rank = {id(runner): position for position, runner in enumerate(started)}
    ordered = sorted(runners, key=lambda each: (each.spec.stop_stage, -rank.get(id(each), len(started))))
    return [list(stage) for _number, stage in groupby(ordered, key=lambda each: each.spec.stop_stage)]


def check_specs(specs: Sequence[ComponentSpec]) -> None:
    """Check that every component can start, and stops no later than the components on whose gates its start depends.

    Raises:
        SpecsBroken: A name twice, a gate without an opener or with two, a circle of needs, or a stop out of order.
    """
    opener: dict[str, ComponentSpec] = {}
    names: set[str] = set()
    for spec in specs:
        if spec.name in names:
            raise SpecsBroken(spec.name, "is declared twice")
        names.add(spec.name)
        for gate in (*spec.opens, *spec.opens_itself):
            if gate in opener:
                raise SpecsBroken(spec.name, f"opens the gate {gate!r}, which {opener[gate].name!r} opens already")
            opener[gate] = spec
    for spec in specs:
        _check_needs(spec, opener)


def _check_needs(spec: ComponentSpec, opener: dict[str, ComponentSpec]) -> None:
    behind: set[str] = set()
    frontier = list(spec.needs)
    while frontier:
        gate = frontier.pop()
        if gate not in opener:
            raise SpecsBroken(spec.name, f"needs the gate {gate!r}, which no component opens")
        before = opener[gate]
        if before is spec:
            raise SpecsBroken(spec.name, f"waits for itself through the gate {gate!r}, so it could never start")
        if spec.stop_stage > before.stop_stage:
            problem = f"stops in stage {spec.stop_stage}, after {before.name!r} whose gate {gate!r} it needs"
            raise SpecsBroken(spec.name, problem)
        if gate not in behind:
            behind.add(gate)
            frontier.extend(before.needs)
