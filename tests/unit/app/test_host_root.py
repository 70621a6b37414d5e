"""An agent in a container sees the host's root elsewhere, and still speaks of the driver as the host does."""

import pathlib

import anyio
import pytest

from nodeagent.app.driver_files import choose_driver_files
from nodeagent.app.hardware import ExtraReadings
from nodeagent.app.real_hardware import RealHardware, plan_nvml, plan_probe
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.model.cdi import DriverFiles
from tests.support.files.driver_tree import DriverTree


def load(*overrides: str) -> Settings:
    return load_settings(environ={}, overrides=overrides).settings


@pytest.mark.parametrize(
    ("overrides", "root"),
    [
        (("node.host_root=/host",), "/host"),
        (("node.host_root=/host", "driver.root=/run/nvidia/driver"), "/host/run/nvidia/driver"),
        (("driver.root=/run/nvidia/driver",), "/run/nvidia/driver"),
        ((), "/"),
    ],
)
def test_driver_is_looked_for_below_the_hosts_root(overrides: tuple[str, ...], root: str) -> None:
    """The driver's root is the host's path, wherever the host is seen."""
    settings = load(*overrides)
    assert str(plan_probe(settings).driver_root) == root
    assert plan_nvml(LiveSettings(settings), ExtraReadings()).driver_root == root


def test_containers_are_told_the_hosts_paths(tmp_path: pathlib.Path) -> None:
    """What goes into a specification begins where the host's root does."""
    host = tmp_path / "host"
    DriverTree(host).install()
    found = anyio.run(read_files, load(f"node.host_root={host}"))
    assert found.libraries
    assert all(library.host_path.startswith("/usr/lib/") for library in found.libraries)


async def read_files(settings: Settings) -> DriverFiles:
    worker = WorkerThread("driver files")
    try:
        return await choose_driver_files(settings, worker).read_driver_files()
    finally:
        worker.close()


def test_the_edges_of_a_real_node_can_be_built() -> None:
    """With nothing started yet: what is wrong here would keep every agent from starting."""
    hardware = RealHardware(LiveSettings(load())).build()
    assert hardware.nodes is not None
    assert hardware.markers is not None
