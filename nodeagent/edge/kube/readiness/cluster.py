"""The agents' DaemonSets and pods and all nodes, listed in pages and watched, and the condition of a DaemonSet.

Owns the requests. Refuses to keep the objects, and to decide the condition.
"""

from random import Random
from typing import Final

from msgspec import Raw
from msgspec.json import encode

from nodeagent.core.clock import Clock
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.errors import making_sense
from nodeagent.edge.kube.fleet import FleetWatch
from nodeagent.edge.kube.node import NODES
from nodeagent.edge.kube.readiness.documents import (
    parse_agent_pod,
    parse_daemon_set,
    parse_fleet_node,
    render_condition_patch,
)
from nodeagent.model.readiness import (
    AGENT_LABEL,
    AGENT_NAME,
    AgentDaemonSet,
    AgentPod,
    ClusterCondition,
    FleetNode,
)

FIELD_MANAGER: Final = "nodeagent-cluster-status"
_APPS: Final = "/apis/apps/v1"
_SELECTOR: Final = {"labelSelector": f"{AGENT_LABEL}={AGENT_NAME}"}


class ClusterApi:
    """The cluster's agents; without a namespace, those of all namespaces."""

    def __init__(
        self, client: KubeClient, namespace: str, clock: Clock, rng: Random, *, silence_seconds: float
    ) -> None:
        self._client, self._clock = client, clock
        below = f"/namespaces/{namespace}" if namespace else ""
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        self.daemon_sets: FleetWatch[AgentDaemonSet] = FleetWatch(
            client,
            f"{_APPS}{below}/daemonsets",
            f"the agents' DaemonSets {where}",
            parse_daemon_set,
            rng,
            selector=_SELECTOR,
            silence_seconds=silence_seconds,
        )
        self.pods: FleetWatch[AgentPod] = FleetWatch(
            client,
            f"/api/v1{below}/pods",
            f"the agents' pods {where}",
            parse_agent_pod,
            rng,
            selector=_SELECTOR,
            silence_seconds=silence_seconds,
        )
        self.nodes: FleetWatch[FleetNode] = FleetWatch(
            client, NODES, "all nodes", parse_fleet_node, rng, selector={}, silence_seconds=silence_seconds
        )

    async def write_condition(self, daemon_set: AgentDaemonSet, condition: ClusterCondition) -> AgentDaemonSet:
        """Set the condition of a DaemonSet; returns the DaemonSet with the condition.

        Raises:
            ApiNotFound: the DaemonSet is gone.
            ApiConflict: the DaemonSet was replaced by another of the same name.
        """
        before = daemon_set.condition
        changed = before is None or before.status != condition.status
        attempted = f"write the condition of DaemonSet {daemon_set.namespace}/{daemon_set.name}"
        patch = render_condition_patch(condition, self._clock.wall(), changed=changed)
        document = await self._client.request(
            "PATCH",
            f"{_APPS}/namespaces/{daemon_set.namespace}/daemonsets/{daemon_set.name}/status",
            attempted=attempted,
            query={"fieldManager": FIELD_MANAGER},
            body=patch | {"metadata": {"uid": daemon_set.uid}},
            content_type="application/strategic-merge-patch+json",
        )
        with making_sense(attempted):
            return parse_daemon_set(Raw(encode(document)))
