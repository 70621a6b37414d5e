"""Tells pods of the faults of their GPUs, by an event on each pod.

Owns the condition `pod-events-unwritten` and the state `PodEventCounts`.
Refuses to ask the API server for anything: who holds a device says the journal, and the kubelet where the journal lacks
a name.
"""

from collections.abc import Awaitable, Callable, Collection

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.signals.series import SeriesStore, Standing
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.errors import ApiInvalid, ApiNotFound
from nodeagent.edge.kube.node import KubeNode
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.journal import FractionTable
from nodeagent.rules.signals import Holders, choose_told, follow_holders, has_nameless, list_holds, render_fault

UNWRITTEN = "pod-events-unwritten"
_FINAL = (ApiInvalid, ApiNotFound)
"""Refusals of the event itself, and of its namespace; another try has the same answer."""


class Signals:
    """The component."""

    name = "signals"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        node: KubeNode,
        node_name: str,
        identify: Callable[[], Awaitable[None]],
        *,
        facts_after: int | None = None,
    ) -> None:
        """`identify` has the journal learn the pods that the kubelet names; faults after `facts_after` are told."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._node, self._node_name, self._identify = node, node_name, identify
        self._facts_after = facts_after
        self._holders, self._series = Holders(), SeriesStore()
        self._nameless: list[tuple[GpuFaultReported, Collection[str]]] = []
        """Faults of devices whose holder has no name yet, and the uids of the pods told meanwhile."""
        self._writer, self._asker = Waker(), Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Tell of faults until cancelled; started before any answer, as the API server may be away."""
        self._bus.publish_state(self._series.counts, source=self.name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_holders, name="signals holders")
            tasks.start_soon(self._ask_forever, name="signals names")
            tasks.start_soon(self._write_forever, name="signals writes")
            with self._bus.listen(GpuFaultReported, client=self.name, after=self._facts_after) as faults:
                task_status.started()
                async for envelope in faults:
                    self._note_fault(envelope.value)

    async def _follow_holders(self) -> None:
        watched = (AllocationTable, FractionTable, ReadyClaims)
        with self._bus.watch_all(*watched, client=f"{self.name} holders") as changes:
            async for _ in changes:
                self._look_at_holders()

    def _look_at_holders(self) -> None:
        read = self._bus.read
        present = list_holds(read(AllocationTable), read(FractionTable), read(ReadyClaims))
        self._holders = follow_holders(self._holders, present, self._clock.monotonic())

    def _note_fault(self, fault: GpuFaultReported) -> None:
        if not (self._live.now.kubernetes.events and self._live.now.signals.pod_events):
            return
        told = self._tell(fault, ())
        if self._is_nameless(fault):
            self._nameless.append((fault, told))
            self._asker.wake()

    def _is_nameless(self, fault: GpuFaultReported) -> bool:
        return has_nameless(self._bus.read(AllocationTable), frozenset(fault.devices))

    def _tell(self, fault: GpuFaultReported, already: Collection[str]) -> Collection[str]:
        """Take the fault into the events of its pods; returns the uids of the pods."""
        self._look_at_holders()
        now = self._clock.monotonic()
        pods, severity = choose_told(self._holders, fault, now)
        for pod in pods:
            if pod.uid not in already:
                event = render_fault(fault, severity, pod, self._node_name)
                if not self._series.note(event, self._clock.wall(), now):
                    self._log.warning("pod_event_dropped", pod=pod.describe(), event_reason=event.reason)
        self._writer.wake()
        return frozenset(pod.uid for pod in pods)

    async def _ask_forever(self) -> None:
        """Have pods named whose devices have faults; one question for all faults until then."""
        while True:
            await self._asker.wait()
            faults, self._nameless = self._nameless, []
            if any(self._is_nameless(fault) for fault, _ in faults):
                await self._identify()
            for fault, told in faults:
                self._tell(fault, told)
                if self._is_nameless(fault):
                    self._log.warning("pod_of_fault_unknown", number=fault.number, devices=list(fault.devices))

    async def _write_forever(self) -> None:
        while True:
            await self._write_due()
            for late in self._series.forget_old(self._clock.monotonic()):
                event = late.series.event
                self._log.warning("pod_event_dropped", pod=late.series.pod.describe(), event_reason=event.reason)
            self._bus.publish_state(self._series.counts, source=self.name)
            self._conditions.show(UNWRITTEN, self._series.describe_trouble())
            with anyio.move_on_after(self._series.find_wait(self._clock.monotonic())):
                await self._writer.wait()

    async def _write_due(self) -> None:
        while due := self._series.take_due(self._clock.monotonic()):
            before = self._series.counts.written
            async with anyio.create_task_group() as tasks:
                for each in due:
                    tasks.start_soon(self._write, each, name="signals write")
            if self._series.counts.written == before:
                self._series.note_away(self._clock.monotonic())

    async def _write(self, standing: Standing) -> None:
        series = standing.series
        try:
            await self._node.write_series(series)
        except NodeagentError as error:
            is_final = isinstance(error, _FINAL)
            self._log.warning(
                "pod_event_not_written", pod=series.pod.describe(), reason=str(error), is_tried_again=not is_final
            )
            self._series.note_failed(standing, str(error), self._clock.monotonic(), is_final=is_final)
            return
        self._series.note_written(standing, self._clock.monotonic())
        if not series.is_written:
            self._log.info("pod_event_written", pod=series.pod.describe(), note=series.event.note)
