"""The node in the cluster besides its labels, and the node requests made there.

Owns the one watch of the node object, the node condition, the start-up taint, the terminal-failure annotation, events,
and the state `NodeRequests`; other components fulfil the requests. Refuses to be needed: with the API server away
all other work goes on, and on its return the node is brought up to date after a random delay.
"""

from collections.abc import Mapping
from contextlib import aclosing
from random import Random

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.components.cluster.kubernetes_events import TOLD, ReportedEvents, decide_reporting, render_event
from nodeagent.components.cluster.node_requests import (
    decide_mig_label,
    decide_taint,
    is_brake_taint_due,
    parse_taint,
    read_node_requests,
)
from nodeagent.components.cluster.status import (
    NodeSight,
    decide_condition,
    decide_device_conditions,
    decide_lost,
    is_hopeless,
    mark_lost,
    render_proofs,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubePods
from nodeagent.model.cluster import (
    BRAKE_TAINT,
    TERMINAL_ANNOTATION,
    ClusterLink,
    ClusterNode,
    NodeCondition,
    NodeEvent,
    NodeRequests,
    PodLabelTable,
)
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.proof import PROOF_ANNOTATION, GpuProofs
from nodeagent.rules.fractions.bound import BOUND_ANNOTATION
from nodeagent.rules.fractions.by_class import CLASSES_ANNOTATION, CLASSES_BOUND_ANNOTATION
from nodeagent.rules.fractions.published import ANNOTATION as FRACTIONS_ANNOTATION
from nodeagent.rules.ids import build_names
from nodeagent.rules.selectors import select_gpus

POLL_RETRY_SECONDS = 5.0
BOUND_PAUSE_SECONDS = 1.0
"""Between two writings of containers' fractions; each write goes to every watcher of the node."""
SEEN = (DriverState, Inventory, HealthReport, PluginState)
"""The states from which the node's condition is decided."""
GATHER_SECONDS = 0.5
"""How long news gathers before another condition is written: a fault of all GPUs is one write."""
_RETRY = BackoffSettings(first_seconds=1.0, limit_seconds=60.0)
_REST_SECONDS = 0.001
"""The shortest wait: a smaller rest of a time may not move the clock."""
_SHORT_OUTAGE_SECONDS = 5.0
"""After a shorter outage few other agents come back at the same moment."""


class Cluster:
    """The cluster component."""

    name = "cluster"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        node: KubeNode,
        *,
        pods: KubePods | None = None,
        facts_after: int | None = None,
        rng: Random | None = None,
    ) -> None:
        """Wire the component; events are written for facts after the envelope `facts_after`."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._node, self._pods = node, pods
        self._facts_after = facts_after
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._away_since: float | None = None
        self._away_because: type[NodeagentError] | None = None
        self._hopeless_since: float | None = None
        self._was_ready = False
        self._written: tuple[NodeCondition, float] | None = None
        """The condition written last, and when; `None` once seen on the node."""
        self._differs_since: float | None = None
        """Since when another condition than the node's is wanted."""
        self._bound_from, self._wait = 0.0, POLL_RETRY_SECONDS
        """Earliest time of the next write of containers' fractions, and the wait before the next poll."""
        self._told = ReportedEvents()
        self._news = News()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Follow the node, keep its status, write events; started before any answer, as the API server may be away."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_forever, name="cluster watch")
            tasks.start_soon(self._keep_status, name="cluster status")
            tasks.start_soon(self._follow_pods_while_wanted, name="cluster pod labels")
            tasks.start_soon(self._write_events, name="cluster events")
            task_status.started()

    async def _follow_forever(self) -> None:
        backoff = Backoff(_RETRY, self._rng)
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(self._node.follow_node()) as nodes:
                    async for node in nodes:
                        await self._note_reachable()
                        cause = self._bus.publish_state(node, source=self.name)
                        requests = read_node_requests(node, cuts=self._live.now.mig.manage)
                        self._bus.publish_state(requests, source=self.name, cause=cause)
            except NodeagentError as error:
                self._note_away(error)
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began))

    async def _note_reachable(self) -> None:
        if self._away_since is not None:
            away = self._clock.monotonic() - self._away_since
            self._away_since = self._away_because = None
            if away > _SHORT_OUTAGE_SECONDS:
                await anyio.sleep(self._rng.uniform(0, self._live.now.kubernetes.catch_up_max_seconds))
            self._log.info("api_server_back", away_seconds=round(away, 1))
        link = self._bus.publish_state(ClusterLink(reachable=True), source=self.name)
        self._conditions.clear("api-unreachable", cause=link)

    def _note_away(self, error: NodeagentError) -> None:
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
        if self._away_because is not type(error):
            self._away_because = type(error)
            self._log.warning("api_server_away", reason=str(error))
        link = self._bus.publish_state(ClusterLink(reachable=False, detail=str(error)), source=self.name)
        self._conditions.set("api-unreachable", detail=str(error), cause=link)

    async def _keep_status(self) -> None:
        backoff = Backoff(_RETRY, self._rng)
        watched = (*SEEN, MigState, FractionOffers, DeviceTable, Offering, GpuProofs, ClusterNode, ClusterLink)
        with self._bus.watch_all(*watched, client=f"{self.name} status") as changes:
            while True:
                self._wait = POLL_RETRY_SECONDS
                try:
                    await self._bring_status()
                except NodeagentError as error:
                    self._conditions.set("node-not-updated", detail=str(error))
                    wait = backoff.delay_after_failure(ran_seconds=0)
                    await anyio.sleep(wait)
                    continue
                self._conditions.clear("node-not-updated")
                with anyio.move_on_after(self._wait):
                    await anext(changes)
                    backoff = Backoff(_RETRY, self._rng)

    async def _bring_status(self) -> None:
        """Decide the condition, the annotations and the taint, and write the differences."""
        driver = self._bus.read(DriverState)
        if driver is None:
            return
        condition, lost = self._decide(driver)
        cause = self._news.take(*(self._bus.latest(state) for state in SEEN))
        self._conditions.show("node-lost-for-good", lost, cause=cause)
        node = self._reach_node()
        if node is None:
            return
        await self._bring_brake_taint(node)
        if self._live.now.kubernetes.node_condition and not driver.is_done_without:
            await self._bring_condition(condition, node)
        await self._bring_device_conditions(node)
        if node.annotations.get(TERMINAL_ANNOTATION, "") != lost:
            await self._node.write_annotation(TERMINAL_ANNOTATION, lost or None)
        offers = self._bus.read(FractionOffers)
        offers = offers if offers is not None else FractionOffers()
        published = {FRACTIONS_ANNOTATION: offers.published, CLASSES_ANNOTATION: offers.published_classes}
        proofs = self._bus.read(GpuProofs)
        if proofs is not None or not self._live.now.proof.is_on:
            published[PROOF_ANNOTATION] = render_proofs(proofs)
        for key, text in published.items():
            if node.annotations.get(key, "") != text:
                await self._node.write_annotation(key, text or None)
        await self._bring_bound(node, {BOUND_ANNOTATION: offers.bound, CLASSES_BOUND_ANNOTATION: offers.bound_classes})
        for key, value in decide_mig_label(self._bus.read(MigState), node).items():
            await self._node.write_label(key, value)
        await self._bring_taint(node, ready=condition.status == "True")

    async def _bring_condition(self, condition: NodeCondition, node: ClusterNode) -> None:
        """Write the condition, the first one at once; a later one when the news of the same moment is in it."""
        before, now = node.condition, self._clock.monotonic()
        if self._is_on_its_way(condition, node) or before == condition:
            self._differs_since = None
            return
        self._differs_since = now if self._differs_since is None else self._differs_since
        rest = self._differs_since + GATHER_SECONDS - now
        if before is not None and rest > 0:
            self._wait = min(self._wait, max(rest, _REST_SECONDS))
            return
        await self._node.write_condition(condition, changed=before is None or before.status != condition.status)
        self._written, self._differs_since = (condition, self._clock.monotonic()), None

    async def _bring_bound(self, node: ClusterNode, bound: Mapping[str, str]) -> None:
        """Write the fractions held by containers, in a single write for several containers that start together."""
        changed = {key: text for key, text in bound.items() if node.annotations.get(key, "") != text}
        if not changed:
            return
        now = self._clock.monotonic()
        if self._bound_from <= now:
            for key, text in changed.items():
                await self._node.write_annotation(key, text or None)
            self._bound_from = now + BOUND_PAUSE_SECONDS
        self._wait = min(self._wait, self._bound_from - now)

    def _is_on_its_way(self, condition: NodeCondition, node: ClusterNode) -> bool:
        """Whether the condition was written and is yet to be seen: news of another write may come earlier."""
        if self._written is None:
            return False
        written, since = self._written
        if node.condition == written or self._clock.monotonic() - since >= POLL_RETRY_SECONDS:
            self._written = None
            return False
        return written == condition

    async def _bring_device_conditions(self, node: ClusterNode) -> None:
        """Write the conditions of device classes, and remove conditions without a class."""
        settings, table = self._live.now, self._bus.read(DeviceTable)
        if table is None and settings.devices.classes:
            return
        classes = settings.devices.classes if settings.kubernetes.node_condition else ()
        wanted = {each.type: each for each in decide_device_conditions(table, classes)}
        there = {each.type: each for each in node.device_conditions}
        for kind, condition in wanted.items():
            before = there.get(kind)
            if before != condition:
                changed = before is None or before.status != condition.status
                await self._node.write_condition(condition, changed=changed)
        for kind in there.keys() - wanted.keys():
            await self._node.remove_condition(kind)

    def _decide(self, driver: DriverState) -> tuple[NodeCondition, str]:
        requests = self._bus.read(NodeRequests)
        sight = NodeSight(
            driver=driver,
            inventory=self._find_offered(),
            health=self._bus.read(HealthReport),
            plugin=self._bus.read(PluginState),
            paused=requests.pause if requests is not None and driver.phase is DriverPhase.RELEASED else "",
        )
        condition = decide_condition(sight)
        now = self._clock.monotonic()
        if not is_hopeless(condition, driver):
            self._hopeless_since = None
            return condition, ""
        if self._hopeless_since is None:
            self._hopeless_since = now
        settings = self._live.now
        lost = decide_lost(
            condition,
            now - self._hopeless_since,
            settings.driver.revalidate_seconds,
            settings.kubernetes.terminal_after_attempts,
        )
        return mark_lost(condition, lost), lost

    def _find_offered(self) -> Inventory | None:
        """The GPUs for pods; GPUs left alone on purpose make no node unready."""
        inventory, wanted = self._bus.read(Inventory), self._live.now.gpus
        if inventory is None:
            return None
        return replace(inventory, gpus=select_gpus(inventory.gpus, wanted.include, wanted.exclude))

    async def _bring_taint(self, node: ClusterNode, *, ready: bool) -> None:
        settings = self._live.now.kubernetes
        if settings.startup_taint is not None:
            taint = parse_taint(settings.startup_taint)
            present = node.has_taint(taint)
            wanted = decide_taint(
                present=present, ready=ready, was_ready=self._was_ready, put_again=settings.taint_again
            )
            if wanted is not None:
                await self._node.change_taint(taint, present=wanted)
                self._log.info("startup_taint_changed", taint=settings.startup_taint, present=wanted)
        self._was_ready = self._was_ready or ready

    async def _bring_brake_taint(self, node: ClusterNode) -> None:
        """Keep schedulers away until the kubelet no longer counts a GPU that the brake has closed."""
        present = node.has_taint(BRAKE_TAINT)
        wanted = is_brake_taint_due(self._bus.read(Offering), self._clock.wall())
        if wanted is not present:
            await self._node.change_taint(BRAKE_TAINT, present=wanted)
            self._log.info("brake_taint_changed", present=wanted)

    def _reach_node(self) -> ClusterNode | None:
        link = self._bus.read(ClusterLink)
        return self._bus.read(ClusterNode) if link is not None and link.reachable else None

    async def _follow_pods_while_wanted(self) -> None:
        """Ask about pods only while the settings ask for pods' labels."""
        backoff = Backoff(_RETRY, self._rng)
        while True:
            wait = POLL_RETRY_SECONDS
            if self._pods is not None and self._live.now.metrics.pod_labels:
                began = self._clock.monotonic()
                await self._follow_pods(self._pods)
                wait = backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began)
            if not self._live.now.metrics.pod_labels:
                self._conditions.clear("pod-labels-unknown")
                self._bus.retract_state(PodLabelTable, source=self.name)
            await anyio.sleep(wait)

    async def _follow_pods(self, pods: KubePods) -> None:
        """Follow the pods until the watch breaks or is no longer wanted; known labels then stay, as their pods do."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leave_when_unwanted, tasks.cancel_scope, name="cluster pod labels wanted")
            try:
                async with aclosing(pods.follow_pods()) as tables:
                    async for table in tables:
                        self._conditions.clear("pod-labels-unknown")
                        self._bus.publish_state(table, source=self.name)
            except NodeagentError as error:
                self._log.warning("pods_not_followed", reason=str(error))
                self._conditions.set("pod-labels-unknown", detail=str(error))
            tasks.cancel_scope.cancel()

    async def _leave_when_unwanted(self, following: anyio.CancelScope) -> None:
        async for _ in Ticker(POLL_RETRY_SECONDS):
            if not self._live.now.metrics.pod_labels:
                following.cancel()

    async def _write_events(self) -> None:
        with self._bus.listen(*TOLD, client=f"{self.name} events", after=self._facts_after) as facts:
            async for fact in facts:
                event = render_event(fact.value, build_names(self._bus.read(Inventory)))
                if event is not None and self._live.now.kubernetes.events:
                    await self._tell(event)

    async def _tell(self, event: NodeEvent) -> None:
        """Write an event within the budget, once the API server can be reached; a refused event is not repeated."""
        self._told, count = decide_reporting(self._told, event, self._clock.monotonic())
        if not count:
            return
        try:
            await self._node.write_event(await self._wait_node(), event, count)
        except NodeagentError as error:
            self._log.warning("event_not_written", event_reason=event.reason, reason=str(error))

    async def _wait_node(self) -> ClusterNode:
        """The node, once the API server can be reached."""
        with self._bus.watch_all(ClusterLink, ClusterNode, client=f"{self.name} events wait") as changes:
            while (node := self._reach_node()) is None:
                await anext(changes)
            return node
