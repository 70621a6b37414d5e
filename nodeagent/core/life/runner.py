"""The life of one component: wait for gates, run, back off, run again, give up past the budget.

Owns one task and its counts. The supervisor owns all runners and decides about the whole.
Refuses to know other components; a crash touches no other component.
"""

from collections.abc import Callable
from random import Random

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct, field
from msgspec.structs import replace

from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import Clock
from nodeagent.core.errors import ComponentNotRunning, ComponentReturned
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.life.budget import BudgetSettings, CrashBudget
from nodeagent.core.life.component import ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import ComponentReport, Degraded, Phase
from nodeagent.core.log.lines import describe_error, get_logger

_RUNNING = (Phase.STARTING, Phase.RUNNING, Phase.DEGRADED)


class RunnerSettings(Struct, frozen=True):
    """Pauses and limits of restarts."""

    backoff: BackoffSettings = field(default_factory=BackoffSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)


class Crashed(Struct, frozen=True):
    """An unexpected end of a component."""

    error: Exception
    ran_seconds: float


class _Started(TaskStatus[None]):
    """Takes a component's report of its start; further reports change nothing."""

    def __init__(self, on_started: Callable[[], None]) -> None:
        self._on_started: Callable[[], None] | None = on_started

    def started(self, value: None = None) -> None:  # noqa: ARG002  # anyio's protocol names it
        if self._on_started is not None:
            on_started, self._on_started = self._on_started, None
            on_started()


class Runner:
    """Runs one component until stopped or past the budget; built inside the running event loop."""

    def __init__(
        self, spec: ComponentSpec, gates: Gates, bus: Bus, clock: Clock, settings: RunnerSettings, rng: Random
    ) -> None:
        self.spec = spec
        self.ended = anyio.Event()
        self.budget = CrashBudget(settings.budget)
        self._gates, self._bus, self._clock = gates, bus, clock
        self._backoff = Backoff(settings.backoff, rng)
        self._life = anyio.CancelScope()
        self._attempt: anyio.CancelScope | None = None
        self._injected: Exception | None = None
        self._log = get_logger(component=spec.name)
        self.report = ComponentReport(
            name=spec.name,
            phase=Phase.WAITING,
            since=clock.wall(),
            vital=spec.vital,
            restarts=0,
            last_error=None,
            degraded_reason=None,
            waiting_for=gates.closed_among(*spec.needs),
        )
        gates.closed_among(
            *spec.opens, *spec.opens_itself
        )  # an undeclared gate is refused now rather than at the start
        self._publish()

    async def run(self, on_first_start: Callable[[], None]) -> bool:
        """Run and restart the component; `True` when stopped, `False` when past the budget."""
        kept_going = True
        try:
            with self._life:
                kept_going = await self._run_with_restarts(on_first_start)
        finally:
            self._move(Phase.STOPPED if kept_going else Phase.FAILED)
            self.ended.set()
        return kept_going

    def stop(self) -> None:
        """Stop the component; `ended` is set afterwards."""
        if self.ended.is_set():
            return
        self._move(Phase.STOPPING)
        self._life.cancel()

    def inject(self, error: Exception) -> None:
        """End the present run as if the component had raised `error`."""
        if self._attempt is None or self.report.phase not in _RUNNING:
            raise ComponentNotRunning(self.spec.name, self.report.phase)
        self._injected = error
        self._attempt.cancel()

    def note_degraded(self, reason: str | None) -> None:
        """Take over the component's state; `None` for recovered."""
        if self.report.phase in (Phase.RUNNING, Phase.DEGRADED):
            self._move(Phase.RUNNING if reason is None else Phase.DEGRADED, degraded_reason=reason)

    async def _run_with_restarts(self, on_first_start: Callable[[], None]) -> bool:
        while True:
            await self._wait_for_gates()
            on_first_start()
            crash = await self._run_once()
            if crash is None:
                return True
            if not self.budget.note_crash(self._clock.monotonic()):
                self._log.error("component_given_up", error=crash.error, crashes=self.budget.crashes)
                return False
            await self._back_off(crash)

    async def _wait_for_gates(self) -> None:
        while closed := self._gates.closed_among(*self.spec.needs):
            self._move(Phase.WAITING, waiting_for=closed)
            await self._gates.wait_changed()

    async def _run_once(self) -> Crashed | None:
        """Run the component once; the crash, or `None` when stopped."""
        self._move(Phase.STARTING)
        began = self._clock.monotonic()
        error: Exception = ComponentReturned(self.spec.name)
        try:
            with anyio.CancelScope() as self._attempt:
                await self.spec.build().run(task_status=_Started(self._note_started))
        except Exception as raised:  # noqa: BLE001  # the one place where any crash of a component ends
            error = raised
        finally:
            self._attempt = None
            self._undo_start()
        if self._life.cancel_called:
            self._note_end_while_stopping(error)
            return None
        crash = Crashed(self._take_injected() or error, self._clock.monotonic() - began)
        self._note_crash(crash)
        return crash

    def _take_injected(self) -> Exception | None:
        error, self._injected = self._injected, None
        return error

    async def _back_off(self, crash: Crashed) -> None:
        delay = self._backoff.delay_after_failure(ran_seconds=crash.ran_seconds)
        self._move(Phase.BACKING_OFF)
        self._log.info("component_restart_delayed", delay_seconds=round(delay, 3))
        await anyio.sleep(delay)
        self._move(Phase.BACKING_OFF, restarts=self.report.restarts + 1)

    def _note_started(self) -> None:
        degraded = self._bus.latest(Degraded, self.spec.name)
        self._move(Phase.RUNNING)
        self._log.info("component_started", restarts=self.report.restarts)
        if degraded is not None:
            self.note_degraded(degraded.value.reason)
        for gate in self.spec.opens:
            self._gates.open(gate, by=self.spec.name)

    def _undo_start(self) -> None:
        for gate in self.spec.opens:
            self._gates.close(gate, by=self.spec.name)
        self._bus.retract_state(Degraded, self.spec.name)

    def _note_crash(self, crash: Crashed) -> None:
        self._move(self.report.phase, last_error=describe_error(crash.error))
        self._log.exception("component_crashed", crash.error, ran_seconds=round(crash.ran_seconds, 3))

    def _note_end_while_stopping(self, error: Exception) -> None:
        if not isinstance(error, ComponentReturned):
            self._move(self.report.phase, last_error=describe_error(error))
            self._log.exception("component_crashed_while_stopping", error)

    def _move(
        self,
        phase: Phase,
        *,
        restarts: int | None = None,
        last_error: str | None = None,
        degraded_reason: str | None = None,
        waiting_for: tuple[str, ...] = (),
    ) -> None:
        before = self.report
        self.report = replace(
            before,
            phase=phase,
            since=before.since if phase is before.phase else self._clock.wall(),
            restarts=before.restarts if restarts is None else restarts,
            last_error=last_error or before.last_error,
            degraded_reason=degraded_reason,
            waiting_for=waiting_for,
        )
        self._publish()

    def _publish(self) -> None:
        self._bus.publish_state(self.report, source="supervisor", key=self.spec.name)
