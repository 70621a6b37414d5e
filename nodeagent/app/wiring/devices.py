"""Builds the component for devices of any vendor."""

from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.components.devices.component import Devices
from nodeagent.components.devices.plugin_task import ClassPlugins
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.devices.host_scan import HostScan, ScanRoots
from nodeagent.edge.host.files.cdi_files import SpecFiles


class DevicesWiring:
    """Objects that outlive a restart of the component."""

    def __init__(
        self, bus: Bus, conditions: Conditions, clock: Clock, live: LiveSettings, kubelet: KubeletWiring
    ) -> None:
        self._bus, self._conditions, self._clock, self._live = bus, conditions, clock, live
        self._workers = [WorkerThread(name) for name in ("device nodes of classes", "device checks", "device names")]
        self.plugins = ClassPlugins(live, kubelet.journal)
        kubelet.sources.append(self.plugins)
        kubelet.narrow = self.plugins.narrow

    def build(self) -> Devices:
        """The component."""
        node = self._live.now.node
        look, commands, names = self._workers
        return Devices(
            self._bus,
            self._conditions,
            self._clock,
            self._live,
            self.plugins,
            scan=HostScan(ScanRoots(node.host_root, node.sys_dir), look, commands),
            specs=SpecFiles(self._live.now.cdi.dir, others=(), worker=names),
        )

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()
