"""Tells pods of the faults of their GPUs, by an event on each pod, and by a condition where the settings ask for it.

Owns the conditions `pod-events-unwritten` and `pod-conditions-unwritten`, and the states `PodEventCounts` and
`PodConditionCounts`.
Refuses to ask the API server for anything: who holds a device says the journal, and the kubelet where the journal lacks
a name.
"""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from random import Random
from typing import Final, NamedTuple

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.signals.series import SeriesStore
from nodeagent.components.signals.write_task import PodWriter
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import BackoffSettings, decide_delay
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubePodStatus
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import EventSeries, PodConditionCounts
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.journal import FractionTable
from nodeagent.rules.signals import (
    Holders,
    Severity,
    choose_told,
    follow_holders,
    has_nameless,
    list_holds,
    render_condition,
    render_fault,
)

RETRY: Final = BackoffSettings(first_seconds=2.0, limit_seconds=30.0)
"""The shortest pause is the second that a busy API server asks for: what is drawn comes on top."""
UNWRITTEN, CONDITIONS_UNWRITTEN = "pod-events-unwritten", "pod-conditions-unwritten"


class FaultSinks(NamedTuple):
    """Where pods are told of faults."""

    events: KubeNode
    conditions: KubePodStatus


class Signals:
    """The component."""

    name = "signals"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        sinks: FaultSinks,
        node_name: str,
        identify: Callable[[], Awaitable[None]],
        *,
        facts_after: int | None = None,
    ) -> None:
        """`identify` has the journal learn the pods that the kubelet names; faults after `facts_after` are told."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._sinks, self._node_name, self._identify = sinks, node_name, identify
        self._facts_after = facts_after
        self._holders = Holders()
        pause = partial(decide_delay, RETRY, rng=Random())  # noqa: S311 - spreads load, keeps no secret
        counted, once = SeriesStore(pause), SeriesStore(pause, PodConditionCounts(), counts_repetitions=False)
        self._events = PodWriter("pod_event", counted, sinks.events.write_series, self._show_event_trouble, clock)
        self._pod_conditions = PodWriter(
            "pod_condition", once, self._write_condition, self._show_condition_trouble, clock
        )
        self._nameless: list[tuple[GpuFaultReported, Collection[str]]] = []
        """Faults of devices whose holder has no name yet, and the uids of the pods told meanwhile."""
        self._asker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Tell of faults until cancelled; started before any answer, as the API server may be away."""
        self._publish()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_holders, name="signals holders")
            tasks.start_soon(self._ask_forever, name="signals names")
            tasks.start_soon(self._events.write_forever, self._publish, name="signals writes")
            tasks.start_soon(self._pod_conditions.write_forever, self._publish, name="signals conditions")
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
        if not (self._writes_events() or self._live.now.signals.pod_condition):
            return
        told = self._tell(fault, ())
        if self._is_nameless(fault):
            self._nameless.append((fault, told))
            self._asker.wake()

    def _writes_events(self) -> bool:
        return self._live.now.kubernetes.events and self._live.now.signals.pod_events

    def _is_nameless(self, fault: GpuFaultReported) -> bool:
        return has_nameless(self._bus.read(AllocationTable), frozenset(fault.devices))

    def _tell(self, fault: GpuFaultReported, already: Collection[str]) -> Collection[str]:
        """Take the fault into the events and conditions of its pods; returns the uids of the pods."""
        self._look_at_holders()
        now = self._clock.monotonic()
        pods, severity = choose_told(self._holders, fault, now)
        for pod in pods:
            if pod.uid not in already:
                event = render_fault(fault, severity, pod, self._node_name)
                if self._live.now.signals.pod_condition and severity is Severity.CRITICAL:
                    self._pod_conditions.note(render_condition(event))
                if self._writes_events():
                    self._events.note(event)
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

    async def _write_condition(self, series: EventSeries) -> None:
        if not await self._sinks.conditions.write_fault(series):
            self._log.info("pod_of_condition_gone", pod=series.pod.describe())

    def _show_event_trouble(self, detail: str) -> None:
        self._conditions.show(UNWRITTEN, detail)

    def _show_condition_trouble(self, detail: str) -> None:
        self._conditions.show(CONDITIONS_UNWRITTEN, detail)

    def _publish(self) -> None:
        for writer in (self._events, self._pod_conditions):
            self._bus.publish_state(writer.store.counts, source=self.name)
