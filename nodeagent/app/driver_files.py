"""Chooses the driver files for containers: the host's, or none where the GPUs are made up."""

from pathlib import Path

from nodeagent.app.host_root import see_dev_root, see_in_host_root
from nodeagent.app.simulator import load_simulator
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver.driver_files import DriverFileFinder
from nodeagent.edge.host.files.cdi_files import HostDriverFiles
from nodeagent.model.ports import DriverFileSource


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
