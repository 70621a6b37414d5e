"""An agent in a container sees the host's root elsewhere, and still speaks of the driver as the host does."""

import pathlib
import shutil

import anyio
import pytest

from nodeagent.app.hardware import ExtraReadings
from nodeagent.app.host_root import choose_driver_files, find_driver_roots
from nodeagent.app.real_hardware import RealHardware, plan_nvml, plan_probe
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.handout import HandoutReader
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


def test_device_nodes_are_looked_for_below_the_hosts_root(tmp_path: pathlib.Path) -> None:
    """`driver.dev_root` is the host's path like `driver.root`: an agent in a container has neither for its own."""
    host = tmp_path / "host"
    root = host / "run/nvidia/driver"
    DriverTree(root).install()
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/nvidia7").touch()
    said = "driver.root=/run/nvidia/driver", "driver.dev_root=/run/nvidia/driver"
    settings = load(f"node.host_root={host}", *said)
    assert plan_probe(settings).dev_root == root
    assert "/dev/nvidia7: it is no character device" in anyio.run(read_files, settings).problems
    assert find_driver_roots(settings).dev_on_host == "/run/nvidia/driver"


def test_containers_get_nodes_from_where_they_are(tmp_path: pathlib.Path) -> None:
    """A driver's root without device nodes, as GKE has it, leaves them to the host, for whoever hands them out."""
    DriverTree(tmp_path / "home/kubernetes/bin/nvidia").install()
    shutil.rmtree(tmp_path / "home/kubernetes/bin/nvidia/dev", ignore_errors=True)
    (tmp_path / "dev").mkdir()
    settings = load(f"node.host_root={tmp_path}", "driver.root=/home/kubernetes/bin/nvidia")
    reader = HandoutReader(root=tmp_path, proc_dir=tmp_path)
    facts = anyio.run(reader.read, lambda: find_driver_roots(settings), ())
    reader.close()
    assert facts.dev_root == "/"


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
