"""The trees of PCI devices, from sysfs.

Owns the reading of one symbolic link for each device; no device is touched.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.sysfs import PCI_DEVICES
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.model.ids import PciAddress

_ROOT: Final = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_TIMEOUT_SECONDS: Final = 5.0


class HostPcieRoots:
    """PCIe roots of the node's PCI devices."""

    def __init__(self, worker: WorkerThread, sys_root: Path = Path("/sys")) -> None:
        self._worker, self._sys_root = HostWorker(worker, sys_root, _TIMEOUT_SECONDS), sys_root

    async def read_roots(self, addresses: Collection[PciAddress]) -> Mapping[PciAddress, str]:
        """The root above each device, such as `pci0000:00`; devices with an unknown root are left out."""
        return await self._worker.run(lambda: read_pcie_roots(self._sys_root, addresses), "reading the PCIe trees")

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()


def read_pcie_roots(sys_root: Path, addresses: Collection[PciAddress]) -> dict[PciAddress, str]:
    """The host bridge in each device's path."""
    found: dict[PciAddress, str] = {}
    for address in addresses:
        try:
            place = (sys_root / PCI_DEVICES / address).readlink()
        except OSError:  # the device is gone, or has no link
            continue
        root = next((part for part in place.parts if _ROOT.fullmatch(part)), None)
        if root is not None:
            found[address] = root
    return found
