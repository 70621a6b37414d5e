"""The tree above a PCI device, as sysfs links it."""

from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.host.devices.pcie_roots import HostPcieRoots, read_pcie_roots
from nodeagent.edge.host.errors import HostStuck
from nodeagent.model.ids import PciAddress

NEAR, FAR, GONE, ODD = (PciAddress(f"0000:{bus}:00.0") for bus in ("04", "c1", "e1", "f1"))


@pytest.fixture
def sys_root(tmp_path: Path) -> Path:
    devices = tmp_path / "bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / NEAR).symlink_to(f"../../../devices/pci0000:00/0000:00:01.0/{NEAR}")
    (devices / FAR).symlink_to(f"../../../devices/pci10000:c0/10000:c0:01.0/0000:c1:00.0/{FAR}")
    (devices / ODD).symlink_to("../../../devices/platform/something")
    return tmp_path


def test_the_root_is_the_host_bridge_that_the_link_passes(sys_root: Path) -> None:
    """Domains may have more than four digits; what cannot be told is left out."""
    assert read_pcie_roots(sys_root, [NEAR, FAR, GONE, ODD]) == {NEAR: "pci0000:00", FAR: "pci10000:c0"}


async def test_it_is_read_in_a_thread(sys_root: Path) -> None:
    """A file system may hang."""
    roots = HostPcieRoots(WorkerThread("test"), sys_root)
    try:
        assert await roots.read_roots([NEAR]) == {NEAR: "pci0000:00"}
    finally:
        roots.close()


async def test_a_kernel_that_does_not_answer_is_an_error(sys_root: Path) -> None:
    """What was asked of it can be left out, and the caller says so."""

    class Stuck(WorkerThread):
        async def run(self, *_args: object, **_named: object) -> Any:
            raise WorkerError("reading the PCIe trees took longer than 5 s")

    with pytest.raises(HostStuck, match="took longer"):
        await HostPcieRoots(Stuck("test"), sys_root).read_roots([NEAR])
