"""Builds the parts that speak of this node to the cluster: labels, condition, taint, events.

Owns the one client of the API server, which exists only where there are credentials and the settings allow it.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

import anyio

from nodeagent.app.control import Control
from nodeagent.app.node_facts import choose_node_facts
from nodeagent.components.cluster.component import Cluster
from nodeagent.components.labeler.component import Labeler
from nodeagent.config.live import LiveSettings
from nodeagent.edge.host.feature_file import FeatureFile
from nodeagent.kernel.bus import Bus
from nodeagent.kernel.clock import Clock
from nodeagent.kernel.component import Component, ComponentSpec
from nodeagent.kernel.conditions import Conditions
from nodeagent.kernel.log import get_logger
from nodeagent.kernel.worker_thread import WorkerThread
from nodeagent.model.ports import LabelFile

if TYPE_CHECKING:
    from nodeagent.edge.kube.client import KubeClient
    from nodeagent.edge.kube.node import KubeNode

FEATURE_FILE = "nodeagent"
STOP_STAGE = 10

_log = get_logger(component="agent")


class ClusterSide:
    """What the labeler and cluster components are wired to; lives as long as the process."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        clock: Clock,
        live: LiveSettings,
        environ: Mapping[str, str],
        node_name: str,
        read_control: Callable[[], Control],
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._read_control = read_control
        self._workers = [WorkerThread("node facts"), WorkerThread("feature file")]
        self._node_name = node_name
        self._client: KubeClient | None = None
        self._node = self._open_node(environ, node_name)

    def specs(self) -> tuple[ComponentSpec, ...]:
        """Who of them exists with these settings and credentials."""
        labeler = ComponentSpec("labeler", self._build_labeler, stop_stage=STOP_STAGE)
        if self._node is None:
            return (labeler,)
        return (labeler, ComponentSpec("cluster", self._build_cluster, stop_stage=STOP_STAGE))

    async def aclose(self) -> None:
        """End the connections and let the threads end."""
        for worker in self._workers:
            worker.close()
        if self._client is not None:
            with anyio.move_on_after(1, shield=True):
                await self._client.aclose()

    def _open_node(self, environ: Mapping[str, str], node_name: str) -> "KubeNode | None":
        settings = self._live.now.kubernetes
        if settings.enabled == "false":
            return None
        from nodeagent.edge.kube.client import ClientSettings, KubeClient  # noqa: PLC0415 - only where the API is used
        from nodeagent.edge.kube.credentials import find_credentials  # noqa: PLC0415 - likewise
        from nodeagent.edge.kube.node import KubeNode  # noqa: PLC0415 - likewise

        credentials = find_credentials(settings.kubeconfig, environ)
        if credentials is None:
            if settings.enabled == "true":
                reason = "there is neither kubernetes.kubeconfig nor a pod's service account"
                self._conditions.set("api-unreachable", detail=f"kubernetes.enabled is true, but {reason}")
            return None

        def read_settings() -> ClientSettings:
            now = self._live.now.kubernetes
            return ClientSettings(now.request_timeout_seconds, now.requests_per_second, now.request_burst)

        _log.info("api_server_in_use", credentials=credentials.where, node=node_name)
        self._client = KubeClient(credentials, read_settings)
        return KubeNode(self._client, node_name, self._clock, Random())  # noqa: S311 - spreads load, keeps no secret

    def _build_labeler(self) -> Component:
        settings = self._live.now
        return Labeler(
            self._bus,
            self._conditions,
            self._clock,
            self._live,
            choose_node_facts(settings, self._workers[0]),
            node=self._node,
            files=self._list_files(),
        )

    def _list_files(self) -> Mapping[str, LabelFile]:
        files: dict[str, LabelFile] = {
            "nfd_file": FeatureFile(self._live.now.labels.nfd_dir / FEATURE_FILE, self._workers[1])
        }
        if self._client is not None:
            from nodeagent.edge.kube.node_feature import NodeFeatureObject  # noqa: PLC0415 - only where the API is used

            section = self._live.now.kubernetes
            files["node_feature"] = NodeFeatureObject(
                self._client, self._node_name, section.namespace, section.pod_name
            )
        return files

    def _build_cluster(self) -> Component:
        assert self._node is not None
        control = self._read_control()
        return Cluster(self._bus, self._conditions, self._clock, self._live, self._node, control, control)
