"""Builds the components that report this node to the cluster: labels, condition, taint, events, faults; refused pods.

Owns the only client of the API server, which exists only with credentials and if the settings allow it.
"""

from collections.abc import Awaitable, Callable, Mapping
from random import Random

import anyio

from nodeagent.app.control import Control
from nodeagent.app.node_facts import choose_node_facts
from nodeagent.app.services import Services
from nodeagent.components.cluster.component import Cluster
from nodeagent.components.cluster.refused_pods_task import RefusedPods
from nodeagent.components.driver.workload_task import WorkloadValidation
from nodeagent.components.labeler.component import Labeler, LabelSinks
from nodeagent.components.node_requests.component import NodeRequestHandler
from nodeagent.components.signals.component import FaultSinks, Signals
from nodeagent.components.signals.node_conditions_task import NodeConditions
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.files.feature_file import FeatureFile
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import Credentials, find_credentials
from nodeagent.edge.kube.evictions import KubeDraining, KubeEvictions
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.node_feature import NodeFeatureObject
from nodeagent.edge.kube.own_pod import KubeValidationPod
from nodeagent.edge.kube.pod_requests import KubePodRequests
from nodeagent.edge.kube.pods import KubeNominatedPods, KubePods, KubePodStatus, KubeUnstartedPods
from nodeagent.edge.kube.resource_claims import KubeClaims
from nodeagent.model.cluster import ApiCall
from nodeagent.model.ports import LabelFile

FEATURE_FILE = "nodeagent"
STOP_STAGE = 10

_log = get_logger(component="agent")


class ClusterWiring:
    """The dependencies of the labeler, the cluster and the node requests components; lives as long as the process."""

    def __init__(
        self,
        services: Services,
        environ: Mapping[str, str],
        node_name: str,
        orders: OrderHandlers,
        read_control: Callable[[], Control],
        identify: Callable[[], Awaitable[None]],
    ) -> None:
        """`identify` has the journal learn the pods that the kubelet names."""
        self._services, self._live = services, services.live
        self._orders, self._read_control, self._identify = orders, read_control, identify
        self._workers = [WorkerThread("node facts"), WorkerThread("feature file")]
        self.node_name = node_name
        self._credentials = self._find_credentials(environ)
        self._client: KubeClient | None = None
        self._node: KubeNode | None = None
        self._facts_after: int | None = 0
        self._faults_after: int | None = 0

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The components of this side, by settings and credentials."""
        labeler = ComponentSpec("labeler", self._build_labeler, stop_stage=STOP_STAGE)
        validates = self._live.now.driver.workload_validation
        validation = ComponentSpec(WorkloadValidation.name, self._build_workload_validation, stop_stage=STOP_STAGE)
        always = (labeler, validation) if validates else (labeler,)
        if self._credentials is None:
            return always
        cluster = ComponentSpec("cluster", self._build_cluster, stop_stage=STOP_STAGE)
        requests = ComponentSpec("wishes", self._build_node_requests, stop_stage=STOP_STAGE)
        signals = ComponentSpec("signals", self._build_signals, stop_stage=STOP_STAGE)
        repairers = ComponentSpec(NodeConditions.name, self._build_node_conditions, stop_stage=STOP_STAGE)
        if not self._live.now.kubernetes.delete_refused_pods:
            return (*always, cluster, requests, signals, repairers)
        refused = ComponentSpec(RefusedPods.name, self._build_refused_pods, stop_stage=STOP_STAGE)
        return (*always, cluster, requests, signals, repairers, refused)

    @property
    def is_in_use(self) -> bool:
        """Whether the API server is asked at all."""
        return self._credentials is not None

    async def aclose(self) -> None:
        """End the connections and let the threads end."""
        for worker in self._workers:
            worker.close()
        if self._client is not None:
            with anyio.move_on_after(1, shield=True):
                await self._client.aclose()

    def _find_credentials(self, environ: Mapping[str, str]) -> Credentials | None:
        settings = self._live.now.kubernetes
        if settings.enabled == "false":
            return None
        credentials = find_credentials(settings.kubeconfig, environ)
        if credentials is None and settings.enabled == "true":
            reason = "there is neither kubernetes.kubeconfig nor a pod's service account"
            self._services.conditions.set("api-unreachable", detail=f"kubernetes.enabled is true, but {reason}")
        return credentials

    def open_node(self) -> KubeNode | None:
        """The same object for the life of the process; `None` without credentials."""
        if self._node is None and self._credentials is not None:

            def read_settings() -> ClientSettings:
                now = self._live.now.kubernetes
                return ClientSettings(now.request_timeout_seconds, now.requests_per_second, now.request_burst)

            _log.info("api_server_in_use", credentials=self._credentials.where, node=self.node_name)
            self._client = KubeClient(self._credentials, read_settings)
            spread = Random()  # noqa: S311 - spreads load, keeps no secret
            silence = self._live.now.kubernetes.watch_silence_seconds
            self._node = KubeNode(self._client, self.node_name, self._services.clock, spread, silence_seconds=silence)
        return self._node

    def count_requests(self) -> Mapping[ApiCall, int]:
        """Requests to the API server so far; empty without a client."""
        return self._client.counts if self._client is not None else {}

    def _build_labeler(self) -> Component:
        return Labeler(
            *self._services,
            choose_node_facts(self._live.now, self._workers[0]),
            LabelSinks(self.open_node(), self._list_files()),
        )

    def _list_files(self) -> Mapping[str, LabelFile]:
        files: dict[str, LabelFile] = {
            "nfd_file": FeatureFile(self._live.now.labels.nfd_dir / FEATURE_FILE, self._workers[1])
        }
        if self._client is not None:
            section = self._live.now.kubernetes
            files["node_feature"] = NodeFeatureObject(self._client, self.node_name, section.namespace, section.pod_name)
        return files

    def _build_cluster(self) -> Component:
        node = self.open_node()
        assert node is not None
        # The first component reports earlier facts, too; after a crash no fact is reported twice.
        after, self._facts_after = self._facts_after, None
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        silence = self._live.now.kubernetes.watch_silence_seconds
        return Cluster(
            *self._services,
            node,
            pods=KubePods(self.use_client(), self.node_name, spread, silence_seconds=silence),
            facts_after=after,
        )

    def _build_node_requests(self) -> Component:
        bus, conditions, _, live = self._services
        return NodeRequestHandler(bus, conditions, live, self._orders, self._read_control())

    def _build_signals(self) -> Component:
        node = self.open_node()
        assert node is not None
        # As for the cluster component: earlier faults too, and none twice.
        after, self._faults_after = self._faults_after, None
        sinks = FaultSinks(node, KubePodStatus(self.use_client()))
        return Signals(*self._services, sinks, self.node_name, self._identify, facts_after=after)

    def _build_node_conditions(self) -> Component:
        node = self.open_node()
        assert node is not None
        bus, conditions, _, live = self._services
        return NodeConditions(bus, conditions, live, node)

    def _build_refused_pods(self) -> Component:
        node = self.open_node()
        assert node is not None
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        silence = self._live.now.kubernetes.watch_silence_seconds
        pods = KubeUnstartedPods(self.use_client(), self.node_name, spread, silence_seconds=silence)
        return RefusedPods(*self._services, node, pods)

    def _build_workload_validation(self) -> Component:
        bus, conditions, _, live = self._services
        if not self.is_in_use:
            return WorkloadValidation(bus, conditions, live, None)
        section, spread = live.now.kubernetes, Random()  # noqa: S311 - spreads load, keeps no secret
        own = (section.namespace, section.pod_name)
        silence = section.watch_silence_seconds
        pods = KubeValidationPod(self.use_client(), self.node_name, own, spread, silence_seconds=silence)
        return WorkloadValidation(bus, conditions, live, pods)

    def use_client(self) -> KubeClient:
        """The client of the API server, only to be called where `is_in_use`."""
        self.open_node()
        assert self._client is not None
        return self._client

    async def open_claims(self) -> KubeClaims:
        """Claims as stored in the API server."""
        return KubeClaims(self.use_client())

    def open_binding(self) -> tuple[KubeNominatedPods, KubeClaims]:
        """The pods chosen for this node, with the claims."""
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        silence = self._live.now.kubernetes.watch_silence_seconds
        client = self.use_client()
        return KubeNominatedPods(client, self.node_name, spread, silence_seconds=silence), KubeClaims(client)

    async def open_pod_requests(self) -> KubePodRequests:
        """The requests of pods."""
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        silence = self._live.now.kubernetes.watch_silence_seconds
        return KubePodRequests(self.use_client(), self.node_name, spread, silence_seconds=silence)

    async def open_evictions(self) -> tuple[KubeNode, KubeEvictions]:
        """The node and the eviction of its pods."""
        node = self.open_node()
        assert node is not None
        return node, KubeEvictions(self.use_client(), self.node_name)

    def open_draining(self) -> KubeDraining | None:
        """The API server's evictions for repairs; `None` without an API server."""
        return KubeDraining(self.use_client()) if self.is_in_use else None
