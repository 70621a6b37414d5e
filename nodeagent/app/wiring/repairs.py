"""Builds the component that keeps fault sessions, and in mode act what acts on GPUs and the node."""

from nodeagent.app.hardware import Hardware
from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.app.wiring.driver_upgrades import find_services, open_slots
from nodeagent.components.repairs.acting_task import ActPorts
from nodeagent.components.repairs.component import Repairs
from nodeagent.components.repairs.drain_task import DomainDrain
from nodeagent.components.repairs.reload_task import DriverReload
from nodeagent.config.live import LiveSettings
from nodeagent.config.sections.repairers import RebootWebhook
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.log.audit import noting
from nodeagent.edge.host.driver.tool_child import run_tool
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.processes.device_users import HostDeviceUsers
from nodeagent.edge.http.errors import WebhookRefused
from nodeagent.edge.http.webhook import Webhook, post_document
from nodeagent.edge.kube.node import KubeNode
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ports import GpuProver, RepairJournal
from nodeagent.model.repairs import ToolAnswer
from nodeagent.rules.repair.acts import ACT

REBOOT_REQUIRED = "/var/run/reboot-required"
REQUEST_SECONDS = 60.0


class RebootRequest:
    """Requests a reboot of the node by the configured channel."""

    def __init__(self, live: LiveSettings, name: str, node: KubeNode | None) -> None:
        """`name` is the node's; `node` is `None` without an API server."""
        self._live, self._name, self._node = live, name, node

    async def request(self, reason: str) -> ToolAnswer:
        """Run the command, write the file that a reboot daemon waits for, annotate the node, or post to the URL."""
        settings = self._live.now
        by = settings.repairs.reboot_by
        if by == "node_annotation":
            return await self._annotate(settings.repairs.reboot_annotation.value or reason)
        if by == "webhook":
            return await self._post(settings.repairs.reboot_webhook, reason)
        with noting("process" if by == "command" else "file", by, "request a reboot of the node", reason):
            if by == "command":
                return await run_tool(settings.repairs.reboot_command, REQUEST_SECONDS)
            return await self._write_file(HostPaths(settings.node.host_root), reason)

    async def withdraw(self) -> ToolAnswer:
        """Remove the annotation."""
        return await self._annotate(None)

    async def _annotate(self, value: str | None) -> ToolAnswer:
        if self._node is None:
            return ToolAnswer(code=None, said="there is no API server to annotate the node in")
        try:
            await self._node.write_annotation(self._live.now.repairs.reboot_annotation.key, value)
        except NodeagentError as error:
            return ToolAnswer(code=None, said=str(error))
        return ToolAnswer(code=0)

    async def _post(self, settings: RebootWebhook, reason: str) -> ToolAnswer:
        webhook = Webhook(settings.url, settings.token_file, settings.ca_file, settings.timeout_seconds)
        try:
            with noting("service", webhook.host, "request a reboot of the node", reason):
                await post_document(webhook, {"request": "reboot", "node": self._name, "reason": reason})
        except WebhookRefused as error:
            return ToolAnswer(code=None, said=str(error))
        return ToolAnswer(code=0)

    async def _write_file(self, host: HostPaths, reason: str) -> ToolAnswer:
        worker = WorkerThread("reboot request")
        try:
            writing = HostWorker(worker, host.root, REQUEST_SECONDS)
            await writing.run(lambda: host.write(REBOOT_REQUIRED, f"{reason}\n".encode()), "requesting a reboot")
        except HostError as error:
            return ToolAnswer(code=None, said=str(error))
        finally:
            worker.close()
        return ToolAnswer(code=0)


def build_repairs(
    services: Services,
    hardware: Hardware,
    journal: RepairJournal,
    prover: GpuProver | None,
    users: HostDeviceUsers | None,
    cluster: ClusterWiring,
) -> Repairs:
    """The component; it can act in mode act alone, and where the driver has a program for it.

    `users` is `None` for simulated GPUs, whose processes are made up.
    """
    live = services.live
    slots = open_slots(services, cluster, journal.read_boot)
    if live.now.repairs.mode != ACT or hardware.tool is None:
        return Repairs(*services, journal, slots=slots)
    drain, node = DomainDrain(*services, cluster.open_draining(), users), cluster.open_node()
    reboot = RebootRequest(live, cluster.node_name, node)
    withdraw = reboot.withdraw if node is not None else None
    reload = build_reload(services, hardware)
    ports = ActPorts(hardware.gpus, hardware.tool, reboot.request, drain, prover, withdraw, reload)
    return Repairs(*services, journal, ports, slots)


def build_reload(services: Services, hardware: Hardware) -> DriverReload | None:
    """The means to reload the driver; `None` for GPUs without kernel modules."""
    if hardware.modules is None:
        return None
    return DriverReload(
        hardware.modules, find_services(services.live, hardware), lambda: hardware.read_place().is_host_driver
    )
