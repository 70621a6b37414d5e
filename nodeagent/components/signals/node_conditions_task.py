"""Tells programs that repair or replace nodes of faulty GPUs, by the node conditions that the settings name.

Owns the conditions `node-conditions-not-written`, `node-condition-contested` and `repaired-by-nvsentinel`.
Apart from the agent's own node conditions: a type that the admission policy refuses holds up nothing else.
"""

from random import Random

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.signals.faults import Faults, list_faults
from nodeagent.components.signals.node_conditions import plan_conditions
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.node import KubeNode
from nodeagent.model.cluster import TERMINAL_ANNOTATION, ClusterLink, ClusterNode, NodeCondition
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.rules.repairers import describe_marks
from nodeagent.rules.selectors import select_gpus

NOT_WRITTEN, CONTESTED, MARKED = "node-conditions-not-written", "node-condition-contested", "repaired-by-nvsentinel"
GATHER_SECONDS = 2.0
"""How long news gathers before a write: the driver's report of a fault and the next look at the GPUs are one write."""
_RETRY = BackoffSettings(first_seconds=2.0, limit_seconds=60.0)


def read_faults(bus: Bus, wanted: GpusSettings) -> Faults | None:
    """The faults of the GPUs for pods; GPUs left alone on purpose have none. `None` before the first verdict."""
    inventory, report = bus.read(Inventory), bus.read(HealthReport)
    if inventory is None or report is None:
        return None
    return list_faults(report, select_gpus(inventory.gpus, wanted.include, wanted.exclude), inventory.vanished)


class NodeConditions:
    """The component."""

    name = "node_conditions"

    def __init__(
        self, bus: Bus, conditions: Conditions, live: LiveSettings, node: KubeNode, *, rng: Random | None = None
    ) -> None:
        self._bus, self._conditions, self._live, self._node = bus, conditions, live, node
        self._rng = rng or Random()  # noqa: S311 - spreads load, keeps no secret
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Keep the conditions until cancelled; started before any answer, as the API server may be away."""
        states = self._bus.watch_all(HealthReport, Inventory, ClusterNode, ClusterLink, client=self.name)
        reloads = self._bus.listen(ConfigurationReloaded, client=f"{self.name} settings")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._waker.follow, states, name="node conditions states")
            tasks.start_soon(self._waker.follow, reloads, name="node conditions settings")
            task_status.started()
            await self._keep_forever()

    async def _keep_forever(self) -> None:
        backoff = Backoff(_RETRY, self._rng)
        while True:
            try:
                await self._bring()
            except NodeagentError as error:
                self._conditions.set(NOT_WRITTEN, detail=str(error))
                await anyio.sleep(backoff.delay_after_failure(ran_seconds=0))
                continue
            self._conditions.clear(NOT_WRITTEN)
            backoff = Backoff(_RETRY, self._rng)
            await self._waker.wait()
            await anyio.sleep(GATHER_SECONDS)

    async def _bring(self) -> None:
        """Write the differences between the node and the wanted conditions."""
        node, link = self._bus.read(ClusterNode), self._bus.read(ClusterLink)
        if node is None or link is None or not link.reachable:
            return
        self._conditions.show(MARKED, describe_marks(node))
        settings = self._live.now
        faults = read_faults(self._bus, settings.gpus)
        lost = node.annotations.get(TERMINAL_ANNOTATION, "")
        plan = plan_conditions(settings.signals.node_conditions, faults, lost, node)
        self._conditions.show(CONTESTED, plan.contested)
        for condition in plan.written:
            await self._write(condition, node)
        for kind in plan.removed:
            await self._node.remove_condition(kind)
            self._log.info("node_condition_removed", type=kind)

    async def _write(self, condition: NodeCondition, node: ClusterNode) -> None:
        before = next((each for each in node.other_conditions if each.type == condition.type), None)
        is_changed = before is None or before.status != condition.status
        await self._node.write_condition(condition, changed=is_changed)
        if is_changed:
            self._log.info(
                "node_condition_changed", type=condition.type, status=condition.status, reason=condition.reason
            )
