"""Restores the labels that an earlier process has paused for MIG changes, with access to the cluster."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from nodeagent.app.services import Services
from nodeagent.components.mig.paused_clients_task import PausedClients
from nodeagent.components.mig.request import REQUEST_VERSION
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.kube.evictions import KubeEvictions
from nodeagent.edge.kube.node import KubeNode
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.mig import MEMORY

STORE = (MEMORY, "nodeagent-mig", REQUEST_VERSION)


class MigCluster:
    """The ports `PodEviction` and `ClientPausing`."""

    def __init__(self, open_api: Callable[[], Awaitable[tuple[KubeNode, KubeEvictions]]]) -> None:
        self._open = open_api

    async def evict_pod(self, pod: PodIdentity) -> Eviction:
        """Ask a pod to go."""
        _, evictions = await self._open()
        return await evictions.evict_pod(pod)

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        """The pods of this node with any of these values of the label `app`."""
        _, evictions = await self._open()
        return await evictions.list_pods(applications)

    async def read_labels(self) -> Mapping[str, str]:
        """The node's labels now."""
        node, _ = await self._open()
        return (await node.read_node()).labels

    async def write_label(self, key: str, value: str) -> None:
        """Set a label of the node."""
        node, _ = await self._open()
        await node.write_label(key, value)


def build_paused_clients(
    services: Services, open_store: Callable[[str, str, int], SealedStore], cluster: MigCluster | None
) -> PausedClients:
    """The component that restores labels; `cluster` is `None` without an API server."""
    return PausedClients(services.conditions, services.clock, open_store(*STORE), cluster)
