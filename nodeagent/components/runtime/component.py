"""Knows the container runtime of the kubelet, and sees to it that containers can be given GPUs.

Owns `RuntimeState`, the runtime's conditions, and the writing of its configuration where the settings ask for that.
Where CDI is on, nothing is ever written. A setting undone by other hands is put back a few times an hour, then becomes
a conflict for a person. A restart without the setting in force afterwards is taken back, and not tried again.
"""

from collections import deque
from collections.abc import Sequence

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.runtime.choose import NoRuntime
from nodeagent.components.runtime.patience import Patience, Pause
from nodeagent.components.runtime.plan import join_changes
from nodeagent.components.runtime.probe import Probe, ShimInPlace, decide_shim, probe_runtime, read_tree, render_state
from nodeagent.components.runtime.prove import PlanDisproved, Proof, describe_difference, prove_plan
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.report import Degraded
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, RuntimeConfigured, RuntimeRestarted
from nodeagent.model.ports import ContainerRuntime
from nodeagent.model.runtime import CdiState, ConfigTree, FileChange, RuntimeState

REVIEW_SECONDS = 30.0
"""How long a change that shows in no file, such as a restart of the runtime, may go unseen."""
VERIFY_SECONDS = 0.5
"""Pause between questions to a runtime that was restarted."""
SHIM_SECONDS = 5.0
"""How long the runtime shim may take to be put in place before the runtime is examined without the shim."""
_HOUR_SECONDS = 3600.0
CODES = (
    "runtime-not-found",
    "runtime-cdi-off",
    "runtime-config-blocked",
    "runtime-restart-needed",
    "runtime-config-conflict",
    "runtime-restart-failed",
)


_log = get_logger(component="runtime")


class RuntimeNotInForce(NodeagentError):
    """A restarted runtime does not act by the written configuration."""

    def __init__(self, waited_seconds: float, reason: str) -> None:
        super().__init__(f"{waited_seconds:.0f} s after the restart {reason}")


class RuntimeChangedMeanwhile(NodeagentError):
    """The setting was taken out of the files by other hands while the runtime restarted."""

    def __init__(self, look: Probe) -> None:
        difference = ", ".join(describe_difference(change) for change in look.plan.changes) or look.plan.problem
        super().__init__(f"changed by somebody else while the runtime was restarted: {difference}")


async def judge_plan(runtime: ContainerRuntime, look: Probe) -> Proof:
    """Have the runtime's own program judge the change, and show its effect where a trial can show the effect.

    Raises:
        NodeagentError: the runtime would not take the change.
    """
    await runtime.check(look.runtime.kind, look.runtime.executable, look.planned_tree)
    return await prove_plan(runtime, look)


async def write_plan(runtime: ContainerRuntime, look: Probe) -> Proof:
    """Judge the change, then write the files.

    Raises:
        NodeagentError: no file was written.
    """
    proof = await judge_plan(runtime, look)
    await runtime.apply(look.plan.changes)
    return proof


async def restart_and_verify(
    runtime: ContainerRuntime, live: LiveSettings, look: Probe, changes: Sequence[FileChange]
) -> None:
    """Restart the runtime, and see it answer with the setting in force; otherwise take the whole change back.

    Raises:
        RuntimeChangedMeanwhile: the effect can no longer be seen; the files stay as other hands have left them, and the
            runtime runs with the former ones.
        NodeagentError: the setting is not in force; the files are as before, and the runtime was restarted with them.
    """
    try:
        patience = await _restart(runtime, live, look)
        await _wait_in_force(runtime, live, look, patience)
    except RuntimeChangedMeanwhile:
        # A restart with those files might be the end of a running runtime, and is not the agent's to make.
        raise
    except NodeagentError:
        # Once begun, the way back is gone to its end, even by an agent that is told to stop meanwhile.
        with anyio.CancelScope(shield=True):
            if changes:
                await runtime.undo(changes)
            else:
                await runtime.restore(withdraw)
            await _restart(runtime, live, look)
        raise


async def _restart(runtime: ContainerRuntime, live: LiveSettings, look: Probe) -> Patience:
    """Restart the runtime, and return the patience left for the start."""
    command, timeout = look.runtime.restart_command, live.now.runtime.restart_timeout_seconds
    took = await runtime.measure_start(command, timeout)
    patience = Patience(timeout, took, anyio.current_time())
    failures: list[NodeagentError] = []
    if await _restart_in_time(runtime, look, patience, failures):
        return patience
    late = RuntimeNotInForce(patience.waited_seconds(anyio.current_time()), f"`{' '.join(command)}` is still at it")
    raise next(iter(failures), late)


async def _restart_in_time(
    runtime: ContainerRuntime, look: Probe, patience: Patience, failures: list[NodeagentError]
) -> bool:
    ended = anyio.Event()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancel_when_over, runtime, look, patience, scope, ended, name="runtime start")
            try:
                await runtime.restart(look.runtime.restart_command)
            except NodeagentError as error:
                failures.append(error)
        ended.set()
    return not scope.cancelled_caught and not failures


async def _cancel_when_over(
    runtime: ContainerRuntime, look: Probe, patience: Patience, scope: anyio.CancelScope, ended: anyio.Event
) -> None:
    while not ended.is_set():
        if patience.is_over(anyio.current_time()):
            scope.cancel()
        with anyio.move_on_after(VERIFY_SECONDS):
            await ended.wait()
        await _note_progress(runtime, look, patience)


async def _note_progress(runtime: ContainerRuntime, look: Probe, patience: Patience) -> None:
    try:
        processes = await runtime.list_daemons(look.runtime.kind)
    except NodeagentError as error:
        _log.debug("runtime_progress_unknown", reason=str(error))
    else:
        patience.note_processes(processes, anyio.current_time())


async def _wait_in_force(runtime: ContainerRuntime, live: LiveSettings, restarted: Probe, patience: Patience) -> None:
    wanted = restarted.wanted
    while True:
        shim = decide_shim(live.now.shim, wanted.wrapper if wanted.names is not None else "")
        probe = await probe_runtime(runtime, live.now.runtime, cdi=wanted.cdi, shim=shim)
        if isinstance(probe, NoRuntime):
            reason = probe.reason
            patience.note_silence(reason, anyio.current_time())
            await _note_progress(runtime, restarted, patience)
        elif probe.is_in_force:
            return
        elif probe.tree != restarted.tree and (probe.plan.changes or probe.plan.problem):
            raise RuntimeChangedMeanwhile(probe)
        else:
            reason = "the setting is not in force"
        if patience.is_over(anyio.current_time()):
            raise RuntimeNotInForce(patience.waited_seconds(anyio.current_time()), reason)
        await anyio.sleep(VERIFY_SECONDS)


class Runtime:
    """The runtime component."""

    name = "runtime"

    def __init__(
        self, bus: Bus, conditions: Conditions, clock: Clock, live: LiveSettings, runtime: ContainerRuntime
    ) -> None:
        self._bus, self._conditions, self._clock = bus, conditions, clock
        self._live, self._runtime = live, runtime
        self._attention = Waker()
        self._written: tuple[FileChange, ...] = ()
        """Changes written by this run of the component and proved by no restart yet."""
        self._is_pending = False
        """Whether a restart was needed when the runtime answered last."""
        self._repairs: deque[float] = deque()
        self._pause = Pause()
        self._has_configured = False
        self._refused: ConfigTree | None = None
        """The files as they were after a restart that failed; while they stay so, nothing is tried again."""
        self._failure = ""
        self._disproved: tuple[Probe, PlanDisproved] | None = None
        """The plan that a trial has disproved, and why."""
        self._asked: int | None = None
        self._cause: int | None = None
        """The event that this step follows from: a reload, or an earlier action of the same step."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look, act, report, wait; started after the first look, whatever the result."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_files, name="runtime files")
            tasks.start_soon(self._watch_settings, name="runtime settings")
            tasks.start_soon(self._watch_allocations, name="runtime idleness")
            if self._live.now.runtime.shim:
                await self._wait_shim()
                tasks.start_soon(
                    self._attention.follow, self._bus.watch(CdiState, client=f"{self.name} shim"), name="runtime shim"
                )
            await self._try_step()
            task_status.started()
            while True:
                pause = self._pause.left_seconds(self._clock.monotonic())
                with anyio.move_on_after(min(REVIEW_SECONDS, pause or REVIEW_SECONDS)):
                    await self._attention.wait()
                await self._try_step()

    async def _watch_files(self) -> None:
        while True:
            try:
                await self._runtime.wait_change()
            except NodeagentError as error:
                _log.debug("runtime_watch_interrupted", reason=str(error))
            self._attention.wake()
            await anyio.sleep(1.0)

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=self.name) as reloads:
            async for reload in reloads:
                self._asked = reload.seq
                self._refused = None
                self._pause.forget()
                self._attention.wake()

    async def _watch_allocations(self) -> None:
        with self._bus.watch(AllocationTable, client=f"{self.name} idleness") as tables:
            async for _ in tables:
                if self._live.now.runtime.restart == "when_idle":
                    self._attention.wake()

    async def _wait_shim(self) -> None:
        """Wait a few seconds for the shim, so that its class needs no restart of its own."""
        with anyio.move_on_after(SHIM_SECONDS), self._bus.watch(CdiState, client=f"{self.name} start") as states:
            await anext(states)

    def _find_shim(self) -> ShimInPlace | None:
        state = self._bus.read(CdiState)
        return decide_shim(self._live.now.shim, state.shim if state is not None else "")

    async def _try_step(self) -> None:
        self._cause, self._asked = self._asked, None
        try:
            problems = await self._step()
        except NodeagentError as error:
            problems = {"runtime-config-blocked": str(error)}
        for code in CODES:
            self._conditions.replace(code, {"": problems[code]} if code in problems else {}, cause=self._cause)
        trouble = problems.get("runtime-config-blocked") or problems.get("runtime-config-conflict")
        if trouble:
            self._bus.publish_state(Degraded(trouble), source=self.name, key=self.name)
        else:
            self._bus.retract_state(Degraded, self.name)

    async def _step(self) -> dict[str, str]:
        """Look and act once; the messages for people, by condition.

        After an action another step follows: a change by others meanwhile is in the last look of this step already, and
        would never wake the watch of the files.
        """
        probe = await self._look()
        if self._is_given_up(probe):
            return {"runtime-restart-failed": self._failure} | self._describe(probe)
        problems: dict[str, str] = {}
        if isinstance(probe, Probe) and probe.plan.changes and self._live.now.runtime.manage:
            conflict = self._find_conflict(probe)
            if conflict:
                problems["runtime-config-conflict"] = conflict
            else:
                await self._configure(probe)
                probe = await self._look()
                self._attention.wake()
        if isinstance(probe, Probe) and probe.restart_needed and probe.runtime.restart_command and self._may_restart():
            restarted = probe.runtime
            problems |= await self._restart(probe)
            probe = await self._look()
            self._attention.wake()
            if problems:
                # A runtime that does not answer yet is no other than the one that was rolled back.
                self._refused = probe.tree if isinstance(probe, Probe) else await read_tree(self._runtime, restarted)
        return problems | self._describe(probe)

    def _is_given_up(self, look: Probe | NoRuntime) -> bool:
        """Whether everything is still as a failed restart left the files."""
        if isinstance(look, Probe) and look.tree != self._refused:
            self._refused = None
        return self._refused is not None

    async def _look(self) -> Probe | NoRuntime:
        settings = self._live.now
        probe = await probe_runtime(self._runtime, settings.runtime, cdi=settings.cdi.enabled, shim=self._find_shim())
        state = render_state(probe)
        before = self._bus.read(RuntimeState)
        self._bus.publish_state(state, source=self.name, cause=self._cause)
        if isinstance(probe, Probe):
            if self._is_pending and probe.is_in_force:
                # A restart by other hands has proved the written changes.
                self._written = ()
            self._is_pending = bool(probe.restart_needed)
        if before is None or (before.kind, before.version) != (state.kind, state.version):
            _log.info("runtime_detected", kind=state.kind, version=state.version, socket=state.socket)
        return probe

    def _describe(self, look: Probe | NoRuntime) -> dict[str, str]:
        if isinstance(look, NoRuntime):
            # Without any sign of one, an agent that changes nothing needs none.
            return {"runtime-not-found": look.reason} if look.seen or self._live.now.runtime.manage else {}
        found: dict[str, str] = {}
        if look.plan.problem and (self._live.now.runtime.manage or not look.takes_cdi):
            found["runtime-config-blocked"] = look.plan.problem
        elif look.restart_needed:
            found["runtime-restart-needed"] = look.restart_needed
        elif look.wanted.cdi and not look.takes_cdi:
            name = f"{look.runtime.kind} {look.runtime.version}".strip()
            found["runtime-cdi-off"] = f"{name}, configured in {look.runtime.config_file}"
        return found

    def _find_conflict(self, look: Probe) -> str:
        """Why a lost setting is not put back; empty when the setting is put back."""
        if not self._has_configured:
            return ""
        now = self._clock.monotonic()
        while self._repairs and self._repairs[0] <= now - _HOUR_SECONDS:
            self._repairs.popleft()
        if len(self._repairs) < self._live.now.runtime.repairs_per_hour:
            self._repairs.append(now)
            return ""
        files = ", ".join(describe_difference(change) for change in look.plan.changes)
        return f"{files} lost our setting again after {len(self._repairs)} repairs within the hour"

    async def _configure(self, look: Probe) -> None:
        proof = await self._write(look)
        self._written = join_changes(self._written, look.plan.changes)
        paths = tuple(change.path for change in look.plan.changes)
        unproved = proof.unproved
        _log.info("runtime_configured", paths=paths, repair=self._has_configured, unproved=unproved or None)
        configured = RuntimeConfigured(paths=paths, repair=self._has_configured, unproved=unproved)
        self._cause = self._bus.publish_fact(configured, source=self.name, cause=self._cause).seq
        self._has_configured = True

    async def _write(self, look: Probe) -> Proof:
        """Write the plan, unless a trial of the same plan has failed before: then no trial is started again."""
        if self._disproved is not None and self._disproved[0] == look:
            raise self._disproved[1]
        try:
            return await write_plan(self._runtime, look)
        except PlanDisproved as error:
            self._disproved = (look, error)
            raise

    def _may_restart(self) -> bool:
        settings = self._live.now.runtime
        table = self._bus.read(AllocationTable)
        is_idle = table is not None and not table.allocations
        if self._pause.left_seconds(self._clock.monotonic()):
            return False
        return settings.manage and (settings.restart == "now" or (settings.restart == "when_idle" and is_idle))

    async def _restart(self, look: Probe) -> dict[str, str]:
        command = " ".join(look.runtime.restart_command)
        _log.info("runtime_restart_begun", command=command)
        self._failure = ""
        try:
            await restart_and_verify(self._runtime, self._live, look, self._written)
        except RuntimeChangedMeanwhile as error:
            # No fault of the restart: the step that follows finds the change, as at any other time.
            _log.warning("runtime_changed_meanwhile", reason=str(error))
        except NodeagentError as error:
            self._failure = str(error)
        self._written = ()
        self._pause.note_restart(self._clock.monotonic())
        _log.info("runtime_restarted", command=command, rolled_back=self._failure or None)
        restarted = RuntimeRestarted(command=command, failure=self._failure)
        self._cause = self._bus.publish_fact(restarted, source=self.name, cause=self._cause).seq
        return {"runtime-restart-failed": self._failure} if self._failure else {}
