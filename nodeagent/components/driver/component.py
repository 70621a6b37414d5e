"""Probes the driver for as long as the agent runs, and publishes whether GPUs can be used.

Owns `DriverState`, the driver's conditions, the gate for the components with GPUs, and the marker file for other
operands. Refuses to judge: `decide.py` has the meaning of evidence, `plan_markers.py` the content of markers.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.driver.decide import DriverDecision, decide_driver, decide_pause
from nodeagent.components.driver.plan_markers import DriverPlace, list_markers, plan_markers
from nodeagent.components.driver.plan_modules import LoadPlan, describe_attempt, list_loaded_modules, plan_modules
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import Degraded
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.driver.off_loop import MarkerDirectory
from nodeagent.model.conditions.driver import DRIVER_CODES
from nodeagent.model.driver import DriverEvidence, DriverState, WorkloadResult
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import DriverChanged
from nodeagent.model.ports import DeviceNodes, DriverProbe, ModuleLoader

DRIVER_GATE = "driver_ready"
_MARKER_RETRY_SECONDS = 5.0
"""Pause before a marker that could not be written is tried again."""


class DriverHost(NamedTuple):
    """The driver on this host, with files and device nodes around the driver."""

    probe: DriverProbe
    nodes: DeviceNodes | None = None
    """Repairs device nodes; `None` without device nodes to repair."""
    markers: MarkerDirectory | None = None
    """Writes marker files; `None` without a directory for markers."""
    read_place: Callable[[], DriverPlace] = DriverPlace
    """The place where the driver was last found."""
    modules: ModuleLoader | None = None
    """Loads kernel modules; `None` where there are none to load."""


class Driver:
    """The driver component."""

    name = "driver"

    def __init__(
        self,
        bus: Bus,
        gates: Gates,
        conditions: Conditions,
        host: DriverHost,
        read_settings: Callable[[], DriverSettings],
        *,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`gates` has `driver_ready` among its gates; `is_needed` tells whether this node should have GPUs.

        `read_settings` is asked at each probe, so that a reload takes effect.
        """
        self._bus, self._gates, self._conditions = bus, gates, conditions
        self._host, self._read_settings, self._is_needed = host, read_settings, is_needed
        self._looks_alike = 0
        self._marker_attention = Waker()
        self._troubles: dict[str, str] = {}
        self._seen_modules: frozenset[str] = frozenset()
        self._loads: dict[LoadPlan, str] = {}
        """The problem of each attempt to load kernel modules; empty where modprobe ended well."""
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Probe, publish, wait; started after the first probe, whatever the result."""
        async with anyio.create_task_group() as tasks:
            state = await self._look()
            task_status.started()
            if self._host.markers is not None:
                tasks.start_soon(self._keep_markers, self._host.markers, name="driver markers")
                results = self._bus.watch(WorkloadResult, client=self.name)
                tasks.start_soon(self._marker_attention.follow, results, name="driver markers of workloads")
            while True:
                pause = decide_pause(state.phase, self._looks_alike, self._read_settings().revalidate_seconds)
                with anyio.move_on_after(pause):
                    await self._host.probe.wait_change()
                state = await self._look()

    async def _look(self) -> DriverState:
        if self._host.nodes is not None and self._read_settings().manage_device_nodes:
            await self._repair_nodes(self._host.nodes)
        evidence = await self._host.probe.read_evidence()
        plan = self._plan_load(evidence)
        problem = describe_attempt(self._loads[plan]) if plan in self._loads else ""
        decision = decide_driver(evidence, is_needed=self._is_needed(), load_problem=problem)
        before = self._bus.read(DriverState)
        alike = before is not None and before.phase is decision.state.phase
        self._looks_alike = self._looks_alike + 1 if alike else 1
        self._publish(decision, before)
        self._marker_attention.wake()
        if plan is not None and plan not in self._loads and self._host.modules is not None:
            await self._load(self._host.modules, plan)
            return await self._look()
        return decision.state

    def _plan_load(self, evidence: DriverEvidence) -> LoadPlan | None:
        """The modules to load, tried or not; none of a driver that a container brings."""
        self._seen_modules |= list_loaded_modules(evidence)
        is_wanted = self._read_settings().load_modules and self._host.read_place().is_host_driver
        return plan_modules(evidence, self._seen_modules) if is_wanted else None

    async def _load(self, modules: ModuleLoader, plan: LoadPlan) -> None:
        self._loads[plan] = problem = await modules.load(plan.modules)
        if problem:
            self._log.warning("kernel_modules_not_loaded", modules=plan.modules, error=problem)
        else:
            self._log.info("kernel_modules_loaded", modules=plan.modules)

    def _publish(self, decision: DriverDecision, before: DriverState | None) -> None:
        state = decision.state
        envelope = self._bus.publish_state(state, source=self.name)
        # The new ones first, so that there is no moment without a reason.
        for code, detail in decision.conditions:
            self._conditions.set(code, detail=detail, cause=envelope)
        for code in set(DRIVER_CODES) - {code for code, _ in decision.conditions}:
            self._conditions.clear(code, cause=envelope)
        if before is None or (before.phase, before.driver_version) != (state.phase, state.driver_version):
            self._publish_change(before, envelope)
        if state.ready or state.is_done_without:
            self._gates.open(DRIVER_GATE, by=self.name)

    def _publish_change(self, before: DriverState | None, now: Envelope[DriverState]) -> None:
        state = now.value
        self._log.info(
            "driver_state_changed",
            before=before.phase if before else None,
            after=state.phase,
            detail=state.detail,
            remedy=state.remedy,
        )
        if before is not None:
            fact = DriverChanged(before=before.phase, after=state.phase, detail=state.detail)
            self._bus.publish_fact(fact, source=self.name, cause=now)

    async def _repair_nodes(self, nodes: DeviceNodes) -> None:
        repair = await nodes.repair()
        for change in repair.done:
            self._log.info("device_node_repaired", change=change)
        self._note_trouble("device nodes", "; ".join(repair.failed))

    async def _keep_markers(self, markers: MarkerDirectory) -> None:
        while True:
            if not self._read_settings().validation_markers:
                await self._marker_attention.wait()
                continue
            try:
                await self._reconcile_markers(markers)
            except NodeagentError as error:
                self._note_trouble("validation markers", str(error))
                with anyio.move_on_after(_MARKER_RETRY_SECONDS):
                    await self._marker_attention.wait()
                continue
            self._note_trouble("validation markers", "")
            await _wait_first(self._marker_attention.wait, markers.wait_change)

    async def _reconcile_markers(self, markers: MarkerDirectory) -> None:
        state = self._bus.read(DriverState)
        ready = state is not None and state.ready
        validates, result = self._read_settings().workload_validation, self._bus.read(WorkloadResult)
        plan = plan_markers(
            ready=ready,
            place=self._host.read_place(),
            found=await markers.read_markers(list_markers(validates=validates)),
            validates=validates,
            validated=validates and result is not None and result.passed,
        )
        for name, content in plan.write:
            await markers.write_marker(name, content)
            self._log.info("validation_marker_written", marker=name)
        for name in plan.remove:
            await markers.remove_marker(name)
            self._log.info("validation_marker_removed", marker=name)

    def _note_trouble(self, what: str, trouble: str) -> None:
        """Remember trouble beside the driver itself; the supervisor shows `degraded`."""
        if self._troubles.get(what, "") == trouble:
            return
        self._troubles[what] = trouble
        reason = "; ".join(each for each in self._troubles.values() if each)
        if reason:
            self._bus.publish_state(Degraded(reason), source=self.name, key=self.name)
        else:
            self._bus.retract_state(Degraded, self.name)


async def _wait_first(*waits: Callable[[], Awaitable[None]]) -> None:
    """Return when the first of the waits does, and cancel the others."""

    async def wait_one(wait: Callable[[], Awaitable[None]]) -> None:
        await wait()
        race.cancel_scope.cancel()

    async with anyio.create_task_group() as race:
        for wait in waits:
            race.start_soon(wait_one, wait)
