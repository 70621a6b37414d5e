"""Deletes pods of this node that the node refused, where `kubernetes.delete_refused_pods` asks for that.

Owns the watch of the node's pods that have not started, and the conditions `refused-pods-unknown`, `refused-pods-left`.
Refuses to delete before the node's resources are known, and more pods than the settings allow.
"""

from contextlib import aclosing
from random import Random

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.cluster.refused_pods import (
    DeletionHistory,
    Refusal,
    describe_left,
    find_refusals,
    forget_old,
    plan_deletions,
)
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.pods import KubeUnstartedPods, UnstartedPodTable
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded, RefusedPodDeleted
from nodeagent.model.plugin import PluginState

UNKNOWN, LEFT = "refused-pods-unknown", "refused-pods-left"
_RETRY = BackoffSettings(first_seconds=5.0, limit_seconds=300.0)


class RefusedPods:
    """The component."""

    name = "refused_pods"

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        node: KubeNode,
        pods: KubeUnstartedPods,
        *,
        rng: Random | None = None,
    ) -> None:
        """`node` writes the events on pods."""
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._node, self._pods = node, pods
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._table: UnstartedPodTable = {}
        self._history = DeletionHistory()
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Follow the pods and delete refused pods; started before any answer, as the API server may be away."""
        states = self._bus.watch_all(PluginState, ClusterNode, client=self.name)
        reloads = self._bus.listen(ConfigurationReloaded, client=f"{self.name} settings")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_forever, name="refused pods watch")
            tasks.start_soon(self._waker.follow, states, name="refused pods resources")
            tasks.start_soon(self._waker.follow, reloads, name="refused pods settings")
            task_status.started()
            await self._delete_forever()

    async def _follow_forever(self) -> None:
        backoff = Backoff(_RETRY, self._rng)
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(self._pods.follow()) as tables:
                    async for table in tables:
                        self._conditions.clear(UNKNOWN)
                        self._table = table
                        self._waker.wake()
            except NodeagentError as error:
                self._log.warning("unstarted_pods_not_followed", reason=str(error))
                self._conditions.set(UNKNOWN, detail=str(error))
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began))

    async def _delete_forever(self) -> None:
        while True:
            with anyio.move_on_after(await self._delete_due()):
                await self._waker.wait()

    async def _delete_due(self) -> float | None:
        """Delete the pods that are due; returns the seconds until the next look, `None` until news."""
        while True:
            settings, now = self._live.now.kubernetes, self._clock.monotonic()
            plugin, node = self._bus.read(PluginState), self._bus.read(ClusterNode)
            if plugin is None or node is None:
                return None
            served = {str(each.name) for each in plugin.resources}
            refusals = find_refusals(self._table.values(), served, settings.delete_refused_pods)
            self._history = forget_old(self._history, refusals, now)
            deletions_max = settings.refused_pods_max
            plan = plan_deletions(refusals, self._history, settings.refused_pod_wait_seconds, deletions_max, now)
            if not plan.due:
                self._conditions.show(LEFT, describe_left(plan.left, self._history, deletions_max))
                return plan.wait_seconds
            # The table may change while a request is under way: one pod for each look.
            await self._delete(node, plan.due[0])

    async def _delete(self, node: ClusterNode, refusal: Refusal) -> None:
        seen = refusal.pod
        if self._live.now.kubernetes.events and seen.pod.uid not in self._history.attempts:
            await self._tell(node, refusal)
        try:
            is_deleted = await self._pods.delete(seen)
        except NodeagentError as error:
            self._log.warning("refused_pod_not_deleted", pod=seen.pod.describe(), reason=str(error))
            self._history = self._history.note_trouble(refusal, str(error), self._clock.monotonic())
            return
        now = self._clock.monotonic()
        self._history = self._history.note_answer(refusal, is_deleted=is_deleted, now_seconds=now)
        if not is_deleted:
            self._log.info("refused_pod_changed", pod=seen.pod.describe(), uid=seen.pod.uid)
            return
        fact = RefusedPodDeleted(pod=seen.pod, controller=seen.controller, reason=refusal.reason)
        self._bus.publish_fact(fact, source=self.name)
        self._log.info("refused_pod_deleted", pod=seen.pod.describe(), uid=seen.pod.uid, reason=refusal.reason)

    async def _tell(self, node: ClusterNode, refusal: Refusal) -> None:
        """Write the event on the pod; a refused event keeps no pod."""
        event = refusal.render_event()
        try:
            await self._node.write_event(node, event, 1)
        except NodeagentError as error:
            self._log.warning("event_not_written", event_reason=event.reason, reason=str(error))
