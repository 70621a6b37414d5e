"""Brings evidence to the judge and publishes verdicts: first to the disk, then on the bus.

Owns the subscriptions, the reading of the kernel log as second source, the order of writing before publishing, and the
conditions about health. Refuses to judge: `judge.py` and `decide.py` say what evidence means.
"""

from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import DecodeError

from nodeagent.components.health.decide import Moment
from nodeagent.components.health.evidence.kernel_log import (
    XID_NOT_INITIALISED,
    XID_OFF_THE_BUS,
    RecentXids,
    is_duplicate,
    key_of,
    remember_xid,
    report_line,
)
from nodeagent.components.health.evidence.reports import LOOK_AT_ONCE, judge_report
from nodeagent.components.health.judge import Judge
from nodeagent.components.health.poll_schedule import MonitoringGaps, PollIntervals, PollKind, PollSchedule
from nodeagent.components.health.problems import decide_problems
from nodeagent.components.health.records import StoredVerdicts
from nodeagent.components.health.render import list_changes
from nodeagent.components.health.verdict_store import (
    decode_verdicts,
    encode_verdicts,
    resume_verdicts,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.life.ticker import until_beat
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import KernelLogUnavailable
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.host.machine.kernel_log_lines import (
    DriverLine,
    InitFailureLine,
    KernelRecord,
    LostGpuLine,
    SxidLine,
    XidLine,
    parse_driver_line,
)
from nodeagent.edge.host.machine.kmsg import KernelLog
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.driver import DriverState
from nodeagent.model.events import GpuCleared, GpuEventReported, XidReported
from nodeagent.model.events.hardware import GPU_RESET
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.orders import CLEAR_GPU, ClearCommand
from nodeagent.model.proof import PROOF_FAILED
from nodeagent.model.telemetry import EventWatch, NodeSample

REWRITE_SECONDS = 30.0
"""How old the proof of health in the file may become; the next agent trusts one of less than a minute."""
HOLD_LOG_SECONDS = 0.5
"""How long a line of the kernel log waits for the driver to report the same."""
LOG_RETRY_SECONDS = 60.0
RETRY_WRITE_SECONDS = 5.0
FIRST_POLL_SECONDS = 2.0
"""How long the start waits for the first look: until then all would be refused, and the kubelet told so."""
GATHER_SECONDS = 0.02
"""How long evidence gathers after a report: the first of a burst is told at once, the rest in one word."""


class Health:
    """The health component."""

    name = "health"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        store: SealedStore,
        orders: OrderHandlers,
        *,
        kernel_log: Path | None = None,
    ) -> None:
        """`store` keeps verdicts over restarts; `kernel_log`, the second source, is absent in a simulation."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._store, self._orders, self._kernel_log = store, orders, kernel_log
        self._log = get_logger(component=self.name)
        self._judge = Judge(StoredVerdicts(boot_id=""))
        self._turn = anyio.Lock()
        self._changed, self._is_looked_at, self._is_judged = Waker(), anyio.Event(), anyio.Event()
        self._fingerprint: object = None
        self._written_at = self._began_at = 0.0
        self._polls = PollSchedule(0.0)
        self._is_durable = False
        self._causes: dict[str, Envelope[Any]] = {}
        self._news = News()
        self._cause: Envelope[Any] | None = None
        """What the next word follows from where no report of the GPU itself explains it."""
        self._recent_xids = RecentXids()
        self._held_lines: dict[object, XidReported] = {}
        self._gaps = MonitoringGaps()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Resume the stored verdicts, publish them, then judge until cancelled."""
        self._began_at = self._clock.monotonic()
        self._polls = PollSchedule(self._began_at)
        try:
            self._judge = Judge(await self._read_verdicts())
            with self._bus.listen(XidReported, GpuEventReported, client=self.name) as facts:
                self._note_states(self._bus.latest(Inventory), self._bus.latest(DriverState))
                await self._publish_changes(is_written=True)  # by the agent before: it says nothing else
                async with anyio.create_task_group() as tasks:
                    with self._orders.carrying_out(CLEAR_GPU, self.clear_gpu):
                        tasks.start_soon(self._follow_states, name="health states")
                        tasks.start_soon(self._follow_samples, name="health looks")
                        tasks.start_soon(self._notice_silence, name="health silence")
                        tasks.start_soon(self._follow_event_watch, name="health event watch")
                        tasks.start_soon(self._publish_forever, name="health verdicts")
                        if self._kernel_log is not None and self._live.now.health.watch_kernel_log:
                            tasks.start_soon(self._read_kernel_log, self._kernel_log, tasks, name="health kernel log")
                        tasks.start_soon(self._wait_judged, task_status, name="health first look")
                        async for envelope in facts:
                            self._note_event(envelope)
        finally:
            self._store.close()

    async def _wait_judged(self, task_status: TaskStatus[None]) -> None:
        """Ready with the first verdicts; a driver that does not answer delays the start by a bounded time."""
        with anyio.move_on_after(FIRST_POLL_SECONDS):
            await self._is_judged.wait()
        task_status.started()

    async def clear_gpu(self, command: ClearCommand) -> str:
        """Take a GPU back on a person's word, durable before the answer.

        Raises:
            ControlRefused: No such GPU, or a GPU without a fault.
        """
        gpu, cleared = self._judge.clear(command.gpu, self._now(), who := command.who, reason := command.reason.strip())
        async with self._turn:
            await self._write_verdicts()
        fact = GpuCleared(gpu=gpu.uuid, who=who, reason=reason, cleared=cleared)
        self._causes[gpu.uuid] = self._bus.publish_fact(fact, source=self.name)
        self._log.warning("gpu_cleared", gpu=gpu.uuid, who=who, reason=reason, cleared=cleared)
        self._polls.is_asked = True
        await self._publish_changes()
        lasting = "" if self._is_durable else "; it could not be written down, a restart would forget it"
        return f"GPU {gpu.index}: forgot {', '.join(cleared)}; what is still bad is found at the next look{lasting}"

    # What was known before -----------------------------------------------------------------------------------------

    async def _read_verdicts(self) -> StoredVerdicts:
        stored = await self._store.read()
        troubles = list(stored.troubles)
        verdicts = StoredVerdicts(boot_id="")
        if stored.body is not None:
            try:
                verdicts = decode_verdicts(stored.body)
            except DecodeError as error:
                reason = f"cannot read the stored verdicts: {error}: they are moved aside"
                troubles.append(await self._store.discard(reason))
        if troubles:
            self._log.error("stored_verdicts_unusable", troubles=troubles)
            self._conditions.set("health-history-lost", detail="; ".join(troubles))
        return resume_verdicts(verdicts, stored.boot_id, self._clock.monotonic())

    # Evidence ------------------------------------------------------------------------------------------------------

    async def _follow_states(self) -> None:
        with self._bus.watch_all(Inventory, DriverState, client=f"{self.name} states") as states:
            async for inventory, driver in states:
                self._note_states(inventory, driver)
                self._cause = self._news.take(inventory, driver) or self._cause
                self._polls.is_asked = True
                self._publish_gaps()
                self._changed.wake()

    def _note_states(self, inventory: Envelope[Inventory] | None, driver: Envelope[DriverState] | None) -> None:
        if driver is not None:
            self._judge.note_driver(driver.value)
        if inventory is not None:
            self._judge.note_inventory(inventory.value)

    async def _follow_samples(self) -> None:
        with self._bus.watch(NodeSample, client=f"{self.name} looks") as samples:
            async for envelope in samples:
                now, settings = self._now(), self._live.now.health
                poll = self._polls.take(envelope.time, now, self._intervals)
                if poll is not PollKind.NONE:
                    self._judge.note_sample(envelope.value, now, settings, is_extra=poll is PollKind.EXTRA)
                    self._cause = self._cause or envelope
                    self._note_gap("samples", "")
                    self._is_looked_at.set()
                    self._changed.wake()

    async def _notice_silence(self) -> None:
        """A poll that is due and gets no reading is a missed poll; with the driver released no poll is due."""
        while True:
            intervals = self._intervals
            await anyio.sleep(until_beat(intervals.patience_seconds))
            if not self._polls.is_missed(self._clock.monotonic(), intervals) or self._judge.is_driver_released:
                continue
            self._judge.note_silence(self._now(), self._live.now.health)
            self._note_gap("samples", f"no readings for more than {intervals.patience_seconds:.0f} s")
            self._changed.wake()

    @property
    def _intervals(self) -> PollIntervals:
        settings = self._live.now
        return PollIntervals(settings.health.poll_seconds, settings.inventory.sample_seconds)

    async def _follow_event_watch(self) -> None:
        with self._bus.watch(EventWatch, client=f"{self.name} event watch") as watches:
            async for envelope in watches:
                watch = envelope.value
                self._note_gap("events", "" if watch.watched else watch.reason or "events are not heard")
                self._changed.wake()

    def _note_event(self, envelope: Envelope[XidReported | GpuEventReported]) -> None:
        event = envelope.value
        if envelope.lag:
            self._log.warning("gpu_events_lost", count=envelope.lag)
            self._polls.is_asked = True
        if isinstance(event, XidReported):
            self._note_xid(event, envelope)
        else:
            finding = judge_report(event.kind, event.data)
            if finding is not None:
                is_correctable = event.kind != PROOF_FAILED  # The driver knows nothing of a proof.
                self._judge.note_finding(event.gpu, finding, self._now(), is_correctable=is_correctable)
            elif event.kind == "gpu_back":
                self._judge.note_back(event.gpu)
            elif event.kind == GPU_RESET:
                self._judge.note_own_reset(event.gpu)
                self._polls.is_renewed = True
            self._polls.is_asked = self._polls.is_asked or finding is not None or event.kind in LOOK_AT_ONCE
        # The first since the last word is what the rest follows from: an XID, then what the driver makes of it.
        self._causes.setdefault(event.gpu, envelope)
        self._cause = envelope if self._polls.is_asked else self._cause
        self._changed.wake()

    def _note_xid(self, reported: XidReported, envelope: Envelope[Any]) -> None:
        now = self._now()
        is_news = not is_duplicate(self._recent_xids, reported, now.at)
        self._recent_xids = remember_xid(self._recent_xids, reported, now.at)
        holders = self._bus.read(AllocationTable)
        settings = self._live.now.health
        known = self._judge.note_xid(reported, now, settings, holders=holders, is_counted=is_news)
        if not known:
            self._log.warning("xid_of_unknown_gpu", gpu=reported.gpu, xid=reported.xid)
        if is_news and (fault := self._judge.describe_fault(reported)) is not None:
            self._bus.publish_fact(fault, source=self.name, cause=envelope)
        self._polls.is_asked = True

    # The kernel log, the second source -----------------------------------------------------------------------------

    async def _read_kernel_log(self, path: Path, tasks: TaskGroup) -> None:
        while True:
            after = self._judge.kernel_log_sequence
            try:
                with KernelLog(path, after_sequence=after) as log:
                    self._conditions.clear("kernel-log-unwatched")
                    async for record in log.records():
                        self._note_record(record, tasks, is_first_reading=after is None)
            except KernelLogUnavailable as error:
                self._conditions.set("kernel-log-unwatched", detail=str(error))
            await anyio.sleep(LOG_RETRY_SECONDS)

    def _note_record(self, record: KernelRecord, tasks: TaskGroup, *, is_first_reading: bool) -> None:
        if record.lost_before:
            self._log.warning("kernel_log_records_lost", count=record.lost_before)
            self._polls.is_asked = True
        self._judge.kernel_log_sequence = record.sequence
        line = parse_driver_line(record.text)
        if line is None:
            return
        self._judge.driver_line_sequence = record.sequence
        at = record.monotonic_usec / 1e6
        is_old = is_first_reading and at < self._began_at
        if isinstance(line, SxidLine) and line.fatal is not None:
            limits = self._live.now.health
            verdict = self._judge.note_switch_error(line.sxid, self._now(), limits, is_fatal=line.fatal, is_old=is_old)
            if verdict is not Verdict.HEALTHY and not is_old:
                fault = self._judge.describe_switch_fault(line.sxid, line.address, is_fatal=line.fatal)
                self._bus.publish_fact(fault, source=self.name)
        reported = _parse_xid_line(line, self._judge.inventory)
        if reported is not None and is_old:
            then = Moment(at=at, wall=self._clock.wall() - self._clock.monotonic() + at)
            self._judge.note_xid(reported, then, self._live.now.health, is_old=True)
        elif reported is not None:
            self._hold_line(reported, tasks)
        self._changed.wake()

    def _hold_line(self, reported: XidReported, tasks: TaskGroup) -> None:
        key = key_of(reported)
        if key not in self._held_lines:
            tasks.start_soon(self._report_line, key, name="health held line")
        self._held_lines[key] = reported
        self._judge.hold_line(key)

    async def _report_line(self, key: object) -> None:
        """Report a fault that only the log has; a fault that the driver has reported meanwhile gets the log's text."""
        await anyio.sleep(HOLD_LOG_SECONDS)
        reported = self._held_lines.pop(key)
        self._judge.release_line(key)
        now = self._now()
        if not is_duplicate(self._recent_xids, reported, now.at):
            self._bus.publish_fact(reported, source=self.name)
            return
        self._judge.note_xid(reported, now, self._live.now.health, is_counted=False)
        self._changed.wake()

    # Verdicts ------------------------------------------------------------------------------------------------------

    async def _publish_forever(self) -> None:
        while True:
            with anyio.move_on_after(GATHER_SECONDS):
                # Pods wait for the first verdicts: nothing gathers longer than until there is a look to make them of.
                await (anyio.sleep_forever() if self._is_judged.is_set() else self._is_looked_at.wait())
            with anyio.move_on_after(REWRITE_SECONDS if self._is_durable else RETRY_WRITE_SECONDS):
                await self._changed.wait()
            await self._publish_changes()

    async def _publish_changes(self, *, is_written: bool = False) -> None:
        """Write changed verdicts, then publish; a disk that fails delays a verdict by a second and stops none."""
        async with self._turn:
            settings = self._live.now.health
            report = self._judge.report(
                unknown_after=settings.unknown_after_missed_polls,
                watched=not str(self._gaps),
                wall=self._clock.wall(),
            )
            is_known = all(device.verdict is not Verdict.UNKNOWN for device in report.devices)
            is_judged = is_known or self._polls.has_begun  # by now: a look during the writing is not in this report
            causes, self._causes = self._causes, {}
            if not is_written:
                await self._write_verdicts()
            self._publish(report, causes)
            if is_judged:
                self._is_judged.set()

    async def _write_verdicts(self) -> None:
        now = self._clock.monotonic()
        fingerprint = self._judge.fingerprint()
        is_changed = not self._is_durable or fingerprint != self._fingerprint
        if not is_changed and now - self._written_at < REWRITE_SECONDS:
            return
        trouble = await self._store.write(encode_verdicts(self._judge.collect(now)))
        self._is_durable, self._written_at, self._fingerprint = not trouble, now, fingerprint
        self._conditions.show("health-not-durable", trouble)

    def _publish(self, report: HealthReport, causes: dict[str, Envelope[Any]]) -> None:
        changes = list_changes(self._bus.read(HealthReport), report)
        cause = next((causes[device.gpu] for _, device in changes if device.gpu in causes), self._cause)
        if not self._polls.is_asked:
            self._cause = None
        envelope = self._bus.publish_state(report, source=self.name, cause=cause)
        for fact, device in changes:
            self._bus.publish_fact(fact, source=self.name, cause=causes.get(device.gpu, envelope))
            log = self._log.info if fact.after is Verdict.HEALTHY else self._log.warning
            log("verdict_changed", device=fact.device, before=fact.before, after=fact.after, reason=fact.reason)
        for code, details in decide_problems(report, self._judge.inventory, self._judge.covered).items():
            self._conditions.replace(code, details, cause=envelope)

    def _note_gap(self, what: str, reason: str) -> None:
        """Remember a gap in the monitoring; the condition names all gaps."""
        if self._gaps.note(what, reason):
            self._publish_gaps()

    def _publish_gaps(self) -> None:
        """No gap counts while the driver is away: the driver's own condition explains the silence."""
        self._conditions.show("health-unwatched", str(self._gaps) if not self._judge.is_driver_away else "")

    def _now(self) -> Moment:
        return Moment(at=self._clock.monotonic(), wall=self._clock.wall())


def _parse_xid_line(line: DriverLine, inventory: Inventory) -> XidReported | None:
    """The line as an XID; `None` for a line without a fault, or about a GPU that the inventory lacks."""
    match line:
        case XidLine():
            instances = (line.gpu_instance_id, line.compute_instance_id)
            return report_line(inventory, line.address, line.xid, line.message, instances)
        case LostGpuLine():
            return report_line(inventory, line.address, XID_OFF_THE_BUS, line.message)
        case InitFailureLine():
            return report_line(inventory, line.address, XID_NOT_INITIALISED, line.message)
        case _:
            return None
