"""Builds the component that publishes this node's resource slices, only if claims are served."""

from collections.abc import Callable
from random import Random

from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import STOP_STAGE, ClusterWiring
from nodeagent.components.slices.component import SliceNode, Slices
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.life.component import Component, ComponentSpec
from nodeagent.core.life.gates import Gates
from nodeagent.edge.host.devices.pcie_roots import HostPcieRoots
from nodeagent.edge.kube.slices import KubeDeviceClasses, KubeSlices
from nodeagent.model.slices import SliceContent, SlicePool


class SlicesWiring:
    """Objects that outlive a restart of the component."""

    def __init__(self, services: Services, cluster: ClusterWiring, node: str, read_gates: Callable[[], Gates]) -> None:
        self._services = services
        self._cluster, self._node, self._read_gates = cluster, node, read_gates
        # Made-up GPUs are in no PCIe tree of this host.
        settings = services.live.now
        is_simulated = settings.gpus.simulated_profile is not None
        self._worker = WorkerThread("PCIe trees")
        self.contents: tuple[SliceContent, ...] = ()
        """The resource slices written last."""
        self._roots = None if is_simulated else HostPcieRoots(self._worker, settings.node.sys_dir)

    def specs(self) -> tuple[ComponentSpec, ...]:
        """The component; without an API server a condition and no component."""
        if not self._cluster.is_in_use:
            reason = "there is no API server to tell: set kubernetes.kubeconfig, or run as a pod"
            self._services.conditions.set("slices-not-written", detail=reason)
            return ()
        # The component waits for verdicts and allocation modes itself.
        return (ComponentSpec("slices", self._build, stop_stage=STOP_STAGE),)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _build(self) -> Component:
        settings = self._services.live.now
        pool = SlicePool(driver=settings.claims.driver, node=self._node)
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        silence = settings.kubernetes.watch_silence_seconds
        client = self._cluster.use_client()
        api = KubeSlices(client, pool, spread, silence_seconds=silence)
        classes = KubeDeviceClasses(client, spread, silence_seconds=silence)
        return Slices(
            *self._services,
            SliceNode(api, pool, classes, self._roots),
            wait_judged=lambda: self._read_gates().wait_open("health_known"),
            note_contents=self._note_contents,
        )

    def _note_contents(self, contents: tuple[SliceContent, ...]) -> None:
        self.contents = contents
