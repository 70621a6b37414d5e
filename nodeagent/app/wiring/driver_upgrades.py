"""Builds the component that upgrades the driver, with the access to host and cluster."""

from collections.abc import Callable, Sequence
from pathlib import Path

from nodeagent.app.hardware import Hardware
from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.mig_paused_clients import MigCluster
from nodeagent.components.repairs.drain_task import DomainDrain
from nodeagent.components.repairs.holding_task import UpgradeSlots
from nodeagent.components.repairs.slots_task import RepairSlots
from nodeagent.components.upgrades.acting_task import UpgradePorts
from nodeagent.components.upgrades.component import Upgrades
from nodeagent.config.live import LiveSettings
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.container_runtime.tools import enter_root
from nodeagent.edge.host.driver.module_loader import HostServices, RunOnHost
from nodeagent.edge.host.driver.tool_child import run_tool
from nodeagent.edge.host.processes.device_users import HostDeviceUsers
from nodeagent.edge.kube.lease import KubeSlots
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.cordons import CordonSource
from nodeagent.model.ports import GpuProver, UpgradeJournal
from nodeagent.model.repairs import ToolAnswer

COMPONENT_LABEL = "app.kubernetes.io/component"
DRIVER_PODS = ("nvidia-driver",)
"""The value of the label on the pods of this chart's and of NVIDIA's operator that bring a driver."""


class UpgradeApi(MigCluster):
    """The port `UpgradeCluster`."""

    async def list_driver_pods(self) -> tuple[str, ...]:
        """The node's pods that bring the driver, as `namespace/name`."""
        _, evictions = await self._open()
        return await evictions.list_pods(DRIVER_PODS, label=COMPONENT_LABEL)

    async def send_away(self, pod: str) -> str:
        """Ask a pod to leave; the obstacle, if any."""
        namespace, _, name = pod.partition("/")
        answer = await self.evict_pod(PodIdentity(namespace=namespace, name=name, uid=""))
        return f"a disruption budget keeps the driver's pod {pod}" if answer is Eviction.BLOCKED else ""


def run_on_host(host_root: Path) -> RunOnHost:
    """Runs commands with the host's programs and files."""

    async def run(argv: Sequence[str], timeout_seconds: float) -> ToolAnswer:
        return await run_tool(enter_root(host_root, argv), timeout_seconds)

    return run


def find_services(live: LiveSettings, hardware: Hardware) -> HostServices:
    """The services of the host that have the driver open; made-up GPUs have none."""
    is_real, run = hardware.simulation is None, run_on_host(live.now.node.host_root)
    return HostServices(run, lambda: live.now.driver.services if is_real else ())


def open_slots(services: Services, cluster: ClusterWiring, read_boot: Callable[[], str]) -> RepairSlots | None:
    """The slots of the node's work; `None` without an API server, or without domains in the settings."""
    settings = services.live.now
    if not (cluster.is_in_use and settings.repairs.slots.domains):
        return None
    namespace = settings.repairs.slots.namespace or settings.kubernetes.namespace
    store = KubeSlots(cluster.use_client(), namespace, services.clock)
    return RepairSlots(store, cluster.node_name, read_boot, services.clock)


def build_upgrades(
    services: Services,
    hardware: Hardware,
    journal: UpgradeJournal,
    orders: OrderHandlers,
    cluster: ClusterWiring,
    prover: GpuProver | None,
    users: HostDeviceUsers | None,
) -> Upgrades:
    """The component; `users` finds processes, `None` for simulated GPUs."""
    assert hardware.modules is not None
    bus, _, clock, live = services
    ports = UpgradePorts(
        probe=hardware.probe,
        gpus=hardware.gpus,
        modules=hardware.modules,
        drain=DomainDrain(*services, cluster.open_draining(), users, source=CordonSource.DRIVER),
        slots=UpgradeSlots(open_slots(services, cluster, journal.read_boot), bus, live, clock),
        run_on_host=run_on_host(services.live.now.node.host_root),
        services=find_services(services.live, hardware),
        cluster=UpgradeApi(cluster.open_evictions) if cluster.is_in_use else None,
        rehearsal=cluster.open_draining(),
        prover=prover,
    )
    return Upgrades(*services, journal, orders, ports)
