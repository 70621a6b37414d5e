"""Builds the keeper of the runtime shim."""

from nodeagent.components.cdi.keep_shim import ShimUpdater
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.shim_host import HostShim


def build_shim_updater(live: LiveSettings, worker: WorkerThread) -> ShimUpdater:
    """The keeper of this host's runtime shim."""
    return ShimUpdater(live, build_shim_host(live.now, worker))


def build_shim_host(settings: Settings, worker: WorkerThread) -> HostShim:
    """The edge to the shim's files."""
    node = settings.node
    return HostShim(
        worker,
        host=HostPaths(node.host_root),
        shared=node.state_dir,
        proc_root=node.proc_dir,
        sys_root=node.sys_dir,
    )
