"""Keeps the fault sessions of this node in the journal, says of each what would be done, and in mode act has it done.

Owns the state `RepairState`, the conditions about repairs, and the order of writing before acting: the intent of an act
is durable before the act begins. Refuses to decide: `rules/repair` says what opens, raises and closes a session.
Refuses to wait for an act: `acting_task.py` carries acts out, and this component follows the verdicts meanwhile.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from nodeagent.components.repairs.acting_task import Acting, ActPorts
from nodeagent.components.repairs.drain_task import AGAIN_SECONDS
from nodeagent.components.repairs.holding_task import SlotHolding
from nodeagent.components.repairs.putting_back_task import PuttingBack
from nodeagent.components.repairs.slots_task import RepairSlots
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
from nodeagent.model.cordons import CordonTable
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import GpuEventReported, RepairStepped
from nodeagent.model.events.hardware import GPU_RESET
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import FractionTable
from nodeagent.model.mps import MpsState
from nodeagent.model.ports import RepairJournal
from nodeagent.model.repairs import Ending, FaultSession, Outcome, RepairState, Rung, SessionPlan
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.repair.acts import PROOF_SECONDS, Reach, find_turn, judge_proof, read_reach, take_reading
from nodeagent.rules.repair.domains import find_domain
from nodeagent.rules.repair.drain import list_dead
from nodeagent.rules.repair.findings import Findings, read_findings
from nodeagent.rules.repair.mps_daemons import list_gpus
from nodeagent.rules.repair.outcomes import Reading, add_remarks, forget_settings, keep_settings
from nodeagent.rules.repair.plans import explain_absences, plan_sessions
from nodeagent.rules.repair.sessions import (
    Moment,
    begin_attempt,
    end_attempt,
    find_obstacles,
    resume_session,
    take_findings,
)
from nodeagent.rules.repair.settling import Settling, note_poll
from nodeagent.rules.repair.slots import read_session
from nodeagent.rules.signals import list_holds

RETRY_SECONDS: Final = 5.0
"""Until another try with a journal that cannot be read or written."""
MARGIN_SECONDS: Final = 300.0
"""Of an intent's deadline, beside the reset and its proof: for the settings before and after."""
PLANNED, UNSETTLED = "repair-planned", "findings-unsettled"


class Repairs:
    """The component."""

    name = "repairs"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        journal: RepairJournal,
        ports: ActPorts | None = None,
        slots: RepairSlots | None = None,
    ) -> None:
        """`ports` are there in mode act alone, and `slots` with an API server."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._journal, self._drain = journal, ports.drain if ports is not None else None
        self._reload = ports.reload if ports is not None else None
        self._occupied, self._left = set[int](), set[int]()
        """Sessions whose GPUs had holders when they were last looked at, and those whose holders have left since."""
        self._mode = live.now.repairs.mode
        self._waker = Waker()
        self._holding = SlotHolding(slots, bus, live, clock)
        self._acting: Acting | None = None
        self._putting_back: PuttingBack | None = None
        if ports is not None:
            self._acting = Acting(ports, clock, self._note_act)
            self._putting_back = PuttingBack(ports, self._acting, bus, live, clock, self._waker.wake)
        self._tasks: TaskGroup | None = None
        self._is_resumed = False
        self._opened, self._closed = 0, Counter[Ending]()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Take up the sessions of the journal, let the findings settle, then follow the verdicts until cancelled."""
        now = self._clock.monotonic()
        self._settling = Settling(since_seconds=now, polls_first=self._live.now.health.clean_polls)
        self._polled_at = now
        watched = (
            HealthReport,
            Inventory,
            DriverState,
            AllocationTable,
            FractionTable,
            ReadyClaims,
            ClusterNode,
            CordonTable,
        )
        states = self._bus.watch_all(*watched, client=self.name)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._waker.follow, states, name="repairs states")
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
        if self._acting is not None and self._acting.reading is not None:
            due = self._acting.ended_at + self._find_polls_seconds(self._acting) - self._clock.monotonic()
            return due if due > 0 else RETRY_SECONDS
        if self._is_late:
            return RETRY_SECONDS
        sessions = self._journal.sessions() or {}
        is_owing = self._putting_back is not None and self._putting_back.list_owed_settings(sessions)
        is_watching = (self._drain is not None and self._drain.closed_gpus) or is_owing
        again = AGAIN_SECONDS if is_watching else None
        return min((wait for wait in (again, self._holding.find_wait()) if wait is not None), default=None)

    def _find_polls_seconds(self, acting: Acting) -> float:
        """The time of the polls that a GPU needs to be well again."""
        health = self._live.now.health
        polls = max(1, health.clean_polls - 1) if acting.is_reset else health.clean_polls
        return polls * health.poll_seconds

    async def _bring(self) -> Findings:
        """Bring the sessions to the newest findings, each change durable before it is published."""
        findings = self._read_findings()
        self._is_late = False
        try:
            await self._resume()
            self._poll(findings)
            await self._take(findings)
            await self._follow_act(findings)
            await self._put_back()
            if await self._clear(findings):
                await self._begin_act()
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
                if self._putting_back is not None and self._tasks is not None:
                    self._putting_back.restore_driver(session.under_way, self._moment.boot, self._tasks)
            if resumed.is_open and resumed.attempts and resumed.attempts[-1].outcome is Outcome.IN_USE:
                # Whoever refused it may have left while no agent was there to see it: one more try after a start.
                self._occupied.add(session.number)
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
        if not self._is_settled or sessions is None or inventory is None:
            return
        acting = self._acting.session if self._acting is not None else 0
        for session in take_findings(sessions, findings, inventory, self._moment, acting=acting):
            await self._keep(session, sessions.get(session.number))

    def _note_act(self, session: FaultSession, reading: Reading) -> None:
        """An act has ended; the verdicts wait for a reset that the driver does not report by itself."""
        attempt = session.under_way
        if reading.outcome is None and attempt is not None and attempt.rung.is_reset:
            for one in attempt.kept:
                self._bus.publish_fact(GpuEventReported(gpu=one.gpu, kind=GPU_RESET), source=self.name)
        self._waker.wake()

    async def _follow_act(self, findings: Findings) -> None:
        """Write the outcome of an act, once the end and the proof are known."""
        acting, sessions, inventory = self._acting, self._journal.sessions() or {}, self._bus.read(Inventory)
        if acting is None or acting.reading is None or inventory is None:
            return
        session, reading = sessions.get(acting.session), acting.reading
        if session is None or session.under_way is None:
            acting.clear()
            return
        if reading.outcome is None and session.under_way.rung is Rung.REBOOT:
            # The next boot has the proof.
            acting.clear()
            return
        if reading.outcome is None:
            reading = add_remarks(self._judge_proof(session, findings, acting), [reading.detail])
        ended = take_reading(session, reading, inventory, self._moment)
        if ended != session:
            await self._keep(forget_settings(ended, acting.put_back), session)
            acting.clear()

    def _judge_proof(self, session: FaultSession, findings: Findings, acting: Acting) -> Reading:
        waited, polls_seconds = self._clock.monotonic() - acting.ended_at, self._find_polls_seconds(acting)
        if waited < polls_seconds:
            return Reading(outcome=None)
        is_drain = session.under_way is not None and session.under_way.rung is Rung.DRAIN
        return judge_proof(session, findings, waited, polls_seconds + (0.0 if is_drain else PROOF_SECONDS))

    async def _put_back(self) -> None:
        acting, putting_back, sessions = self._acting, self._putting_back, self._journal.sessions()
        if acting is None or putting_back is None or sessions is None or self._tasks is None:
            return
        if not (acting.session or acting.is_restoring):
            for session in sessions.values():
                if (after := forget_settings(session, acting.put_back)) != session:
                    await self._keep(after, session)
            acting.put_back = frozenset()
        sessions = self._journal.sessions() or {}
        if self._is_settled:
            putting_back.restore_settings(sessions, self._tasks)
        if not await putting_back.withdraw_reboot(sessions.values(), self._moment.boot):
            self._is_late = True

    async def _clear(self, findings: Findings) -> bool:
        """Close the GPUs of the next session, and have everybody leave; whether the act may begin."""
        sessions, inventory = self._journal.sessions(), self._bus.read(Inventory)
        if sessions is None or inventory is None or not self._is_settled:
            return False
        if self._drain is None:
            await self._settle_slots(None, sessions)
            return False
        session = find_turn(tuple(sessions.values()), inventory, self._moment, self._read_reach())
        is_stuck = session is not None and self._is_stuck(session, inventory)
        await self._settle_slots(None if is_stuck else session, sessions)
        if session is None:
            self._drain.end()
            return False
        domain = find_domain(session, session.rung, inventory)
        if not is_stuck and not await self._holding.hold(read_session(session)) and session.under_way is None:
            # What was closed stays so only while the session may have its slots.
            if not (self._holding.has_slots and self._drain.session == session.number):
                self._drain.end()
            return False
        self._drain.close(session, domain)
        if session.under_way is not None:
            return False
        held = await self._drain.bring(session, domain, list_dead(findings.evidence))
        self._note_holders(session, held)
        # Whoever was late may have left by now, and the slots were given back meanwhile.
        return not held and not self._is_stuck(session, inventory) and await self._holding.hold(read_session(session))

    async def _settle_slots(self, turn: FaultSession | None, sessions: Mapping[int, FaultSession]) -> None:
        await self._holding.settle(str(turn.number) if turn is not None else "", map(read_session, sessions.values()))

    def _is_stuck(self, session: FaultSession, inventory: Inventory) -> bool:
        """Whether a session waits for a person or an unseen process; other nodes have its slots meanwhile."""
        if session.under_way is not None:
            return False
        has_left = session.number in self._left
        waits = find_obstacles(session, (session,), inventory, self._moment, holders=(), has_holder_left=has_left)
        return bool(waits) or (self._drain is not None and self._drain.overdue == session.number)

    def _note_holders(self, session: FaultSession, held: Sequence[str]) -> None:
        """The process that refused an attempt has left, once holders were seen and are seen no more."""
        if held:
            self._occupied.add(session.number)
            self._left.discard(session.number)
        elif session.number in self._occupied:
            self._occupied.discard(session.number)
            self._left.add(session.number)

    async def _begin_act(self) -> None:
        """Begin the act of a session without obstacles, after the intent is durable."""
        acting, inventory, settings = self._acting, self._bus.read(Inventory), self._live.now.repairs
        plan = next((one for one in self._plan() if not one.obstacles), None)
        session = (self._journal.sessions() or {}).get(plan.session if plan is not None else 0)
        if (
            acting is None
            or acting.session
            or acting.is_restoring
            or self._drain is None
            or self._tasks is None
            or inventory is None
            or plan is None
            or session is None
        ):
            return
        moment = self._moment
        lasts = settings.reboot_seconds if plan.rung is Rung.REBOOT else settings.reset_seconds + PROOF_SECONDS
        deadline = moment.now_seconds + lasts + MARGIN_SECONDS
        begun = begin_attempt(session, inventory, moment, deadline_seconds=deadline)
        hit = [gpu for gpu in inventory.gpus if gpu.uuid in plan.gpus] if plan.rung.is_reset else []
        kept = keep_settings(await acting.read_settings(hit), list_gpus(self._bus.read(MpsState)))
        taken = await acting.survey(plan.rung)
        attempts = (*begun.attempts[:-1], replace(begun.attempts[-1], kept=kept, driver=taken))
        written = await self._keep(replace(begun, attempts=attempts), session)
        self._left.discard(written.number)
        if held := await self._drain.compare(find_domain(written, plan.rung, inventory)):
            self._note_holders(written, held)
            came = f"came meanwhile: {', '.join(held)}"
            await self._keep(end_attempt(written, Outcome.IN_USE, moment, came), written)
            return
        acting.begin(written, plan.rung)
        self._tasks.start_soon(acting.carry_out, written, settings.reset_seconds, name="repairs act")

    @property
    def _is_settled(self) -> bool:
        return self._is_resumed and self._settling.is_settled

    async def _keep(self, session: FaultSession, before: FaultSession | None) -> FaultSession:
        kept = await self._journal.keep_session(session)
        self._opened += before is None
        if kept.ending is not None:
            self._closed[kept.ending] += 1
        cause = self._bus.latest(HealthReport)
        gpus = tuple(gpu.uuid for gpu in kept.gpus)
        why = f"mode is {self._mode}" if self._acting is None else f"mode is {self._mode}, for {kept.cause}"
        for step in describe_steps(kept, before):
            with noting("repair", f"session {kept.number}", step, why):
                fact = RepairStepped(session=kept.number, gpus=gpus, rung=kept.rung, step=step)
                self._bus.publish_fact(fact, source=self.name, cause=cause)
            self._log.info("repair_session_stepped", session=kept.number, step=step, rung=kept.rung)
        return kept

    def _plan(self) -> tuple[SessionPlan, ...]:
        read = self._bus.read
        inventory = read(Inventory) or Inventory(generation=0)
        holds = list_holds(read(AllocationTable), read(FractionTable), read(ReadyClaims))
        sessions = tuple((self._journal.sessions() or {}).values())
        refusal = self._holding.refusal
        without_slots = {int(self._holding.turn): refusal} if refusal else {}
        reach = replace(self._read_reach(), left=frozenset(self._left), without_slots=without_slots)
        return plan_sessions(sessions, inventory, holds, self._moment, self._mode, reach)

    def _read_reach(self) -> Reach:
        read = self._bus.read
        reach = read_reach(self._live.now.repairs, read(ClusterNode), read(DriverState))
        return replace(reach, can_reload=self._reload is not None and self._reload.is_possible())

    def _publish(self, findings: Findings) -> None:
        read, unsettled = self._bus.read, self._settling.describe()
        known = sorted((self._journal.sessions() or {}).values(), key=lambda one: (not one.is_open, -one.number))
        inventory = read(Inventory) or Inventory(generation=0)
        report = read(HealthReport) or HealthReport(generation=0)
        plans = self._plan()
        state = RepairState(
            mode=self._mode,
            unsettled=unsettled,
            sessions=tuple(known),
            plans=plans,
            with_driver=self._acting.with_driver if self._acting is not None else 0,
            reasons=explain_absences(known, inventory, report, findings, unsettled),
            closed_gpus=self._drain.closed_gpus if self._drain is not None else {},
            opened=self._opened,
            closed=dict(self._closed),
            slots=self._holding.describe(),
        )
        published = self._bus.publish_state(state, source=self.name)
        details = {str(plan.session): plan.sentence for plan in plans}
        self._conditions.replace(PLANNED, details, cause=published)
