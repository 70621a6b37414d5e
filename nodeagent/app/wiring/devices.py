"""Builds the component for devices of any vendor."""

from nodeagent.app.services import Services
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.components.devices.component import Devices
from nodeagent.components.devices.plugin_task import ClassPlugins
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.device_sensors import STUCK_LIMIT, DeviceSensors
from nodeagent.edge.host.devices.host_scan import HostScan, ScanRoots
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.rules.cdi_names import DEVICE_FRACTION_FILES


class DevicesWiring:
    """Objects that outlive a restart of the component."""

    def __init__(self, services: Services, kubelet: KubeletWiring) -> None:
        self._services = services
        self._workers = [WorkerThread(name) for name in ("device nodes of classes", "device checks", "device names")]
        self._workers.append(WorkerThread("device sensors", stuck_limit=STUCK_LIMIT))
        self.plugins = ClassPlugins(services.live, kubelet.journal)
        kubelet.sources.append(self.plugins)
        kubelet.narrow = self.plugins.narrow

    def build(self) -> Devices:
        """The component."""
        settings = self._services.live.now
        node = settings.node
        look, commands, names, sensors = self._workers
        return Devices(
            *self._services,
            self.plugins,
            scan=HostScan(ScanRoots(node.host_root, node.sys_dir), look, commands),
            sensors=DeviceSensors(node.sys_dir, sensors),
            specs=SpecFiles(settings.cdi.dir, others=(), worker=names, passing=(DEVICE_FRACTION_FILES,)),
        )

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()
