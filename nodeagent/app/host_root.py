"""Where the host's paths and driver are for this process: below a mount of the root when running in a container."""

from pathlib import Path

from nodeagent.app.simulator import load_simulator
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver.driver_files import DriverFileFinder
from nodeagent.edge.host.driver.roots import DriverRoots, resolve_driver_roots
from nodeagent.edge.host.files.cdi_files import HostDriverFiles
from nodeagent.model.ports import DriverFileSource


def see_in_host_root(settings: Settings, path: Path) -> Path:
    """A path of the host, as seen by this process."""
    return settings.node.host_root / path.relative_to("/")


def see_dev_root(settings: Settings) -> Path | None:
    """Where the settings put device nodes, as seen by this process; `None` if unset."""
    dev_root = settings.driver.dev_root
    return see_in_host_root(settings, dev_root) if dev_root is not None else None


def find_driver_roots(settings: Settings) -> DriverRoots:
    """Where the driver is now: a driver container may have come meanwhile. Blocks, as file systems do."""
    root = see_in_host_root(settings, settings.driver.root)
    return resolve_driver_roots(root, dev_root=see_dev_root(settings), host_root=settings.node.host_root)


def choose_driver_files(settings: Settings, worker: WorkerThread) -> DriverFileSource:
    """The host's driver; with simulated GPUs only where the settings name a separate driver root.

    Simulated GPUs beside a made-up driver root behave in containers like real GPUs, so the whole way into a container
    can be tried without hardware.
    """
    if settings.gpus.simulated_profile is not None and settings.driver.root == Path("/"):
        return load_simulator().build_driver_files()
    node = settings.node
    finder = DriverFileFinder(proc_root=node.proc_dir, sys_root=node.sys_dir)
    return HostDriverFiles(
        see_in_host_root(settings, settings.driver.root),
        see_dev_root(settings),
        finder,
        worker,
        host_root=node.host_root,
    )
