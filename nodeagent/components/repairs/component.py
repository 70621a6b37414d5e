"""Keeps the fault sessions of this node in the journal, and says of each what would be done; it does nothing to a GPU.

Owns the state `RepairState` and the conditions about repairs.
Refuses to decide: `rules/repair` says what opens, raises and closes a session. Refuses to ask the API server or a GPU
for anything.
"""

from collections import Counter
from typing import Final

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.repairs.steps import describe_steps
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.audit import noting
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import RepairStepped
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import RepairJournal
from nodeagent.model.repairs import Ending, FaultSession, RepairState
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.repair.findings import Findings, read_findings
from nodeagent.rules.repair.plans import explain_absences, plan_sessions
from nodeagent.rules.repair.sessions import Moment, resume_session, take_findings
from nodeagent.rules.repair.settling import Settling, note_poll
from nodeagent.rules.repairers import list_vetoes
from nodeagent.rules.signals import list_holds

RETRY_SECONDS: Final = 5.0
"""Until another try with a journal that cannot be read or written."""
PLANNED, UNSETTLED = "repair-planned", "findings-unsettled"


class Repairs:
    """The component."""

    name = "repairs"

    def __init__(
        self, bus: Bus, conditions: Conditions, clock: Clock, live: LiveSettings, journal: RepairJournal
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._journal = journal
        self._mode = live.now.repairs.mode
        self._waker = Waker()
        self._is_resumed = False
        self._opened, self._closed = 0, Counter[Ending]()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take up the sessions of the journal, let the findings settle, then follow the verdicts until cancelled."""
        now = self._clock.monotonic()
        self._settling = Settling(since_seconds=now, polls_first=self._live.now.health.clean_polls)
        self._polled_at = now
        watched = (HealthReport, Inventory, DriverState, AllocationTable, FractionTable, ReadyClaims, ClusterNode)
        states = self._bus.watch_all(*watched, client=self.name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._waker.follow, states, name="repairs states")
            self._publish(await self._bring())
            task_status.started()
            while True:
                with anyio.move_on_after(self._find_wait()):
                    await self._waker.wait()
                self._publish(await self._bring())

    def _find_wait(self) -> float | None:
        """Seconds until something is due without news; `None` where only news count."""
        if not self._settling.is_settled:
            due = self._polled_at + self._live.now.health.poll_seconds
            return max(0.0, due - self._clock.monotonic())
        return RETRY_SECONDS if self._is_late else None

    async def _bring(self) -> Findings:
        """Bring the sessions to the newest findings, each change durable before it is published."""
        findings = self._read_findings()
        self._is_late = False
        try:
            await self._resume()
            self._poll(findings)
            await self._take(findings)
        except JournalUnavailable as error:
            self._is_late = True
            self._log.warning("repair_session_not_kept", reason=str(error))
        return findings

    def _read_findings(self) -> Findings:
        sample = self._bus.read(NodeSample)
        actions = {one.uuid: one.recovery_action for one in sample.gpus} if sample is not None else {}
        read = self._bus.read
        return read_findings(read(HealthReport), read(Inventory), read(DriverState), actions)

    @property
    def _moment(self) -> Moment:
        return Moment(now_seconds=self._clock.wall(), boot=self._journal.read_boot())

    async def _resume(self) -> None:
        sessions = self._journal.sessions()
        if sessions is None:
            self._is_late = True
            return
        if self._is_resumed:
            return
        for session in sessions.values():
            resumed = resume_session(session, self._moment)
            if resumed != session:
                await self._keep(resumed, session)
        self._is_resumed = True

    def _poll(self, findings: Findings) -> None:
        now, settings = self._clock.monotonic(), self._live.now.health
        if self._settling.is_settled or now - self._polled_at < settings.poll_seconds:
            return
        self._polled_at, self._settling = now, note_poll(self._settling, findings, now)
        why = findings.blind or "polls in a row did not agree"
        self._conditions.show(UNSETTLED, why if self._settling.is_timed_out else "")

    async def _take(self, findings: Findings) -> None:
        sessions, inventory = self._journal.sessions(), self._bus.read(Inventory)
        if not (self._is_resumed and self._settling.is_settled) or sessions is None or inventory is None:
            return
        for session in take_findings(sessions, findings, inventory, self._moment):
            await self._keep(session, sessions.get(session.number))

    async def _keep(self, session: FaultSession, before: FaultSession | None) -> None:
        kept = await self._journal.keep_session(session)
        self._opened += before is None
        if kept.ending is not None:
            self._closed[kept.ending] += 1
        cause = self._bus.latest(HealthReport)
        gpus = tuple(gpu.uuid for gpu in kept.gpus)
        for step in describe_steps(kept, before):
            with noting("repair", f"session {kept.number}", step, f"mode is {self._mode}"):
                fact = RepairStepped(session=kept.number, gpus=gpus, rung=kept.rung, step=step)
                self._bus.publish_fact(fact, source=self.name, cause=cause)
            self._log.info("repair_session_stepped", session=kept.number, step=step, rung=kept.rung)

    def _publish(self, findings: Findings) -> None:
        read, unsettled = self._bus.read, self._settling.describe()
        known = sorted((self._journal.sessions() or {}).values(), key=lambda one: (not one.is_open, -one.number))
        inventory = read(Inventory) or Inventory(generation=0)
        report = read(HealthReport) or HealthReport(generation=0)
        holds = list_holds(read(AllocationTable), read(FractionTable), read(ReadyClaims))
        node = read(ClusterNode)
        vetoes = () if node is None else tuple(list_vetoes(node))
        plans = plan_sessions(known, inventory, holds, self._moment, self._mode, vetoes=vetoes)
        state = RepairState(
            mode=self._mode,
            unsettled=unsettled,
            sessions=tuple(known),
            plans=plans,
            reasons=explain_absences(known, inventory, report, findings, unsettled),
            opened=self._opened,
            closed=dict(self._closed),
        )
        published = self._bus.publish_state(state, source=self.name)
        details = {str(plan.session): plan.sentence for plan in plans}
        self._conditions.replace(PLANNED, details, cause=published)
