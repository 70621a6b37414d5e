"""Keeps the node's labels equal to the state of the node, in each sink.

Owns the round: collect, decide, hold back, write differences. Refuses to decide: rules, holding back and ownership are
in the pure files of the folder. Works without an API server: the Node is labelled once the API server is there.
"""

import sys
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.labeler.hold import Published, decide_published, decide_wait
from nodeagent.components.labeler.plan import (
    LabelPlan,
    keep_last_good,
    parse_features,
    plan_label_patch,
    render_features,
    select_features,
)
from nodeagent.components.labeler.render import TIMESTAMP, LabelFacts, render_labels
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.channels.news import News
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.machine.node_facts import HostNodeFacts
from nodeagent.model.cluster import ClusterLink, ClusterNode
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, LabelsApplied, LabelsContested
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.labels import LabelState, NodeFacts
from nodeagent.model.offering import Offering
from nodeagent.model.ports import LabelFile

if TYPE_CHECKING:  # an agent without an API server does without its client
    from nodeagent.edge.kube.node import KubeNode

POLL_RETRY_SECONDS = 5.0
"""At the latest; changes of GPUs, driver, health, node and settings are noticed at once, those of files by this."""
FACTS_AGE_SECONDS = 60.0
SENT_SECONDS = 1.0
"""How long a patch may take to come back by the watch, before a node that looks as before is taken for robbed anew."""
_RETRY = BackoffSettings(first_seconds=2.0, limit_seconds=60.0)
WATCHED = (DriverState, Inventory, HealthReport, Offering, DeviceTable, ClusterNode, ClusterLink)


class Sent(NamedTuple):
    """The last patch of the Node: labels seen, labels wanted, version of the Node, and time."""

    seen: dict[str, str]
    wanted: dict[str, str]
    seq: int
    at_seconds: float


class LabelSinks(NamedTuple):
    """The places where labels are wanted."""

    node: "KubeNode | None" = None
    files: Mapping[str, LabelFile] = MappingProxyType({})
    """By the word for the place in settings and messages."""
    put_out: Callable[[str], object] = sys.stdout.write


class Labeler:
    """The labeler component."""

    name = "labeler"
    _reloaded: Envelope[ConfigurationReloaded] | None = None
    _is_asked = False

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        facts: HostNodeFacts,
        sinks: LabelSinks,
        *,
        rng: Random | None = None,
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._source = facts
        self._node, self._files, self._put_out = sinks
        self._facts: tuple[NodeFacts, DriverPhase, float] | None = None
        self._published: Published | None = None
        self._good: dict[str, str] | None = None
        self._rendered: dict[str, str] = {}
        self._sent: Sent | None = None
        self._in_files: dict[str, tuple[dict[str, str], float]] = {}
        self._printed: dict[str, str] | None = None
        self._taken_back: set[str] = set()
        self._contested: dict[str, str] = {}
        self._backoff = Backoff(_RETRY, rng or Random())  # noqa: S311 - spreads load, keeps no secret
        self._not_before = 0.0
        self._troubles: dict[str, str] = {}
        self._waker, self._news = Waker(), News()
        self._cause: int | None = None
        """What made the labels those that are wanted now; kept while they are held back or cannot be written."""
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Round after round, woken by changes."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._waker.follow, self._bus.watch_all(*WATCHED, client=self.name), name="labeler states")
            tasks.start_soon(self._watch_settings, name="labeler settings")
            task_status.started()
            while True:
                wait = await self._go_round()
                with anyio.move_on_after(wait):
                    await self._waker.wait()

    async def _watch_settings(self) -> None:
        with self._bus.listen(ConfigurationReloaded, client=f"{self.name} settings") as reloads:
            async for self._reloaded in reloads:
                self._is_asked = True
                self._waker.wake()

    async def _go_round(self) -> float:
        """A round of labelling; the seconds until the next round without an event."""
        picture = await self._look()
        if picture is None:
            return POLL_RETRY_SECONDS
        settings = self._live.now
        rendered = render_labels(picture, settings, self._good or {})
        self._note_cause(rendered.labels)
        self._conditions.replace("labels-left-out", dict.fromkeys(rendered.illegal, ""))
        if picture.driver.ready:
            self._good = rendered.labels
        now, hold = self._clock.monotonic(), settings.labels.hold_seconds
        is_asked, self._is_asked = self._is_asked, False
        self._published = decide_published(self._published, rendered.labels, now, hold, is_asked=is_asked)
        troubles = await self._bring_everywhere(self._published.labels, picture.driver)
        self._tell(troubles)
        due = decide_wait(self._published, now, hold)
        pause = SENT_SECONDS if self._is_fresh(now) else POLL_RETRY_SECONDS
        return pause if due is None else min(due, pause)

    def _is_fresh(self, now: float) -> bool:
        """Whether a patch was sent a moment ago, so that a round soon is worth while."""
        return self._sent is not None and now - self._sent.at_seconds < 2 * SENT_SECONDS

    def _note_cause(self, labels: dict[str, str]) -> None:
        """Remember the cause of changed labels: news of the GPUs, or else of the Node."""
        states = (self._bus.latest(state) for state in (DriverState, Inventory, HealthReport, Offering, DeviceTable))
        news = self._news.take(self._reloaded, *states) or self._news.take(self._bus.latest(ClusterNode))
        is_settled = self._published is not None and self._published.labels == labels and not self._troubles
        if news is not None and (is_settled or labels != self._rendered):
            self._cause = news.seq
        self._rendered = labels

    async def _look(self) -> LabelFacts | None:
        """The facts for labels; `None` before the driver's state is known."""
        driver, inventory = self._bus.read(DriverState), self._bus.read(Inventory)
        if driver is None or (driver.ready and inventory is None):
            return None
        facts = await self._observe_node(driver.phase)
        if facts is None:
            return None
        return LabelFacts(
            facts=facts,
            driver=driver,
            inventory=inventory,
            health=self._bus.read(HealthReport),
            offering=self._bus.read(Offering),
            devices=self._bus.read(DeviceTable),
        )

    async def _observe_node(self, phase: DriverPhase) -> NodeFacts | None:
        now = self._clock.monotonic()
        known = self._facts
        if known is not None and known[1] is phase and now - known[2] < FACTS_AGE_SECONDS:
            return known[0]
        try:
            facts = await self._source.read_facts()
        except NodeagentError as error:
            self._log.warning("node_facts_not_read", reason=str(error))
            return known[0] if known is not None else None
        self._facts = (facts, phase, now)
        return facts

    async def _bring_everywhere(self, labels: dict[str, str], driver: DriverState) -> dict[str, str]:
        """Write differences to each sink; the failures, by sink."""
        sinks = self._live.now.labels.sinks
        troubles: dict[str, str] = {}
        if "stdout" in sinks:
            self._print(labels)
        if self._clock.monotonic() < self._not_before:
            return self._troubles
        for sink in (*sinks, *({"node", *self._files} - {*sinks})):
            try:
                if sink in sinks:
                    self._taken_back.discard(sink)
                    await self._bring(sink, labels, first_look=self._is_first_poll(driver))
                else:
                    await self._take_back(sink)
            except NodeagentError as error:
                troubles[sink] = str(error)
        if troubles:
            now = self._clock.monotonic()
            self._not_before = now + self._backoff.delay_after_failure(ran_seconds=now - self._not_before)
        self._troubles = troubles
        return troubles

    def _is_first_poll(self, driver: DriverState) -> bool:
        """Whether this process has never read the GPUs, although the node may have GPUs."""
        return self._good is None and driver.phase is not DriverPhase.NO_HARDWARE

    async def _bring(self, sink: str, labels: dict[str, str], *, first_look: bool) -> None:
        if sink == "node":
            await self._bring_to_node(labels, first_look=first_look)
        elif sink in self._files:
            await self._bring_to_file(sink, self._files[sink], labels, first_look=first_look)
        elif sink == "node_feature":
            raise SinkUnusable(sink, "there are no credentials for the API server")

    async def _take_back(self, sink: str) -> None:
        """Remove our labels from a sink that the settings no longer want, also labels of an earlier process."""
        if sink == "node":
            await self._take_back_from_node()
        elif sink not in self._taken_back:
            if await self._files[sink].remove():
                self._note_applied(sink, ())
            self._in_files.pop(sink, None)
            self._taken_back.add(sink)

    async def _take_back_from_node(self) -> None:
        # Who wants nothing there has no conflict, whether or not the node can be reached.
        self._note_contested({}, {})
        node = self._find_node()
        if self._node is None or node is None or not node.value.owned_labels or not self._is_answered(node, {}):
            return
        await self._node.apply_labels(node.value, {})
        self._sent = Sent(node.value.labels, {}, node.seq, self._clock.monotonic())
        self._note_applied("node", node.value.owned_labels)

    def _find_node(self) -> Envelope[ClusterNode] | None:
        """The Node of the last watch event, while the API server can be reached."""
        link = self._bus.read(ClusterLink)
        return self._bus.latest(ClusterNode) if link is not None and link.reachable else None

    async def _bring_to_file(self, sink: str, file: LabelFile, labels: dict[str, str], *, first_look: bool) -> None:
        now = self._clock.monotonic()
        known = self._in_files.get(sink)
        if known is None or now - known[1] >= FACTS_AGE_SECONDS:
            known = self._in_files[sink] = (parse_features(await file.read()), now)
        in_place = known[0]
        wanted = select_features(keep_last_good(labels, in_place) if first_look else labels)
        plan = self._plan(wanted, in_place, in_place)
        if plan.apply is not None:
            await file.write(render_features(plan.apply))
            self._in_files[sink] = (plan.apply, now)
            self._note_applied(sink, plan.changed)

    async def _bring_to_node(self, labels: dict[str, str], *, first_look: bool) -> None:
        node = self._find_node()
        if self._node is None or node is None:
            return
        seen = node.value
        ours = {key: seen.labels[key] for key in seen.owned_labels if key in seen.labels}
        wanted = keep_last_good(labels, ours) if first_look else labels
        plan = self._plan(wanted, seen.labels, ours)
        self._note_contested(plan.contested, labels)
        if plan.apply is not None and self._is_answered(node, wanted):
            await self._node.apply_labels(seen, plan.apply)
            self._sent = Sent(seen.labels, wanted, node.seq, self._clock.monotonic())
            self._note_applied("node", plan.changed)

    def _is_answered(self, node: Envelope[ClusterNode], wanted: dict[str, str]) -> bool:
        """Whether the last patch is done, so that a new patch makes sense.

        A patch comes back by the watch; events of the Node for other reasons may come before.
        """
        sent = self._sent
        if sent is None or sent.wanted != wanted or sent.seen != node.value.labels:
            return True
        return sent.seq != node.seq and self._clock.monotonic() - sent.at_seconds >= SENT_SECONDS

    def _note_contested(self, contested: dict[str, str], labels: dict[str, str]) -> None:
        """The condition stands for as long as the conflict does; the fact is told once for each, not once a round."""
        self._conditions.replace(
            "labels-contested",
            {key: f"it says {value or 'nothing'}, not {labels[key] or 'nothing'}" for key, value in contested.items()},
        )
        if contested and contested != self._contested:
            node = self._bus.latest(ClusterNode)
            self._bus.publish_fact(LabelsContested(keys=tuple(contested)), source=self.name, cause=node)
        self._contested = contested

    def _plan(self, wanted: dict[str, str], in_place: dict[str, str], ours: dict[str, str]) -> LabelPlan:
        now = self._clock.wall() if self._live.now.labels.timestamp else None
        return plan_label_patch(wanted, in_place, ours, now)

    def _print(self, labels: dict[str, str]) -> None:
        if labels != self._printed:
            self._put_out(render_features(labels))
            self._printed = dict(labels)

    def _note_applied(self, sink: str, changed: tuple[str, ...]) -> None:
        self._bus.publish_fact(LabelsApplied(sink=sink, changed=changed), source=self.name, cause=self._cause)
        self._log.info("labels_applied", sink=sink, changed=changed)

    def _tell(self, troubles: dict[str, str]) -> None:
        self._conditions.replace("labels-not-written", troubles)
        assert self._published is not None
        known = self._bus.read(LabelState)
        wanted, applied = self._find_wanted(), self._find_applied()
        same = known is not None and (known.wanted, known.applied) == (wanted, applied)
        self._bus.publish_state(
            LabelState(
                wanted=wanted,
                applied=applied,
                sink=", ".join(self._live.now.labels.sinks),
                since_seconds=known.since_seconds if same and known is not None else self._clock.wall(),
                last_error="; ".join(troubles.values()),
                held_back={key: each.value or "" for key, each in self._published.waiting.items()},
            ),
            source=self.name,
            cause=self._cause,
        )

    def _find_wanted(self) -> dict[str, str]:
        """The wanted labels of a sink; a feature file lacks labels that node feature discovery finds by itself."""
        assert self._published is not None
        labels = self._published.labels
        return labels if "node" in self._live.now.labels.sinks else select_features(labels)

    def _find_applied(self) -> dict[str, str]:
        """The present labels of the first readable sink: of the Node's labels, wanted labels and our labels."""
        assert self._published is not None
        sinks = self._live.now.labels.sinks
        node = self._bus.read(ClusterNode)
        if "node" in sinks and node is not None:
            shown = self._published.labels.keys() | set(node.owned_labels)
            return {key: value for key, value in node.labels.items() if key in shown and key != TIMESTAMP}
        in_place = next((self._in_files[sink][0] for sink in sinks if sink in self._in_files), None)
        if in_place is not None:
            return {key: value for key, value in in_place.items() if key != TIMESTAMP}
        return select_features(self._printed or {})


class SinkUnusable(NodeagentError):
    """Labels are wanted in a sink that the agent cannot reach."""

    def __init__(self, sink: str, reason: str) -> None:
        super().__init__(f"cannot write labels to {sink}: {reason}: set kubernetes.kubeconfig or change labels.sinks")
