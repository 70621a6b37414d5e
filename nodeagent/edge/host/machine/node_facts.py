"""Reads the node's facts from the firmware, the kernel and the distribution.

Owns the reading of PCI classes and of the vGPU record in the PCI configuration space.
Refuses to fail: an unreadable fact is an empty fact. All reads block; `HostNodeFacts` makes them in a worker thread,
where a hanging file system gives an error, not half a node.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.gpu_arrival import NVIDIA_VENDOR
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute, read_number, read_raw_attribute
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.model.ids import parse_pci_address
from nodeagent.model.labels import NodeFacts, VendorFunction, VgpuGuest

_PCI_DEVICES = Path("bus/pci/devices")
_OS_RELEASE = (Path("etc/os-release"), Path("usr/lib/os-release"))
_CONFIG_BYTES = 256
_STATUS, _HAS_CAPABILITIES, _FIRST_CAPABILITY = 0x06, 0x10, 0x34
_VENDOR_SPECIFIC, _END = 0x09, 0xFF
_RECORDS_OFFSET = 5
_DRIVER_RECORD, _TEXT_BYTES = 0, 10
_TIMEOUT_SECONDS = 5.0


class HostNodeFacts:
    """The port `NodeFactSource` on a real host."""

    def __init__(self, read: Callable[[], NodeFacts], worker: WorkerThread, sys_root: Path) -> None:
        self._read, self._worker = read, HostWorker(worker, sys_root, _TIMEOUT_SECONDS)

    async def read_facts(self) -> NodeFacts:
        """Read the facts once."""
        return await self._worker.run(self._read, "reading the node's facts")


def read_node_facts(
    *,
    machine_type_file: Path,
    proc_root: Path = Path("/proc"),
    sys_root: Path = Path("/sys"),
    host_root: Path = Path("/"),
) -> NodeFacts:
    """The node's facts now."""
    release = _read_os_release(host_root)
    places = [
        place
        for name in list_names(sys_root / _PCI_DEVICES)
        if read_number((place := sys_root / _PCI_DEVICES / name) / "vendor") == NVIDIA_VENDOR
    ]
    return NodeFacts(
        machine_type=read_attribute(machine_type_file),
        kernel_release=read_attribute(proc_root / "sys/kernel/osrelease"),
        os_id=release.get("ID", ""),
        os_version_id=release.get("VERSION_ID", ""),
        functions=tuple(function for place in places for function in _read_function(place)),
        vgpu=_find_vgpu(places),
    )


def parse_vgpu(config: bytes) -> VgpuGuest | None:
    """The vGPU record of a function's configuration space; `None` for a truncated space."""
    if len(config) < _CONFIG_BYTES:
        return None
    if not config[_STATUS] & _HAS_CAPABILITIES:
        return VgpuGuest()
    place, seen = config[_FIRST_CAPABILITY], set[int]()
    while place not in (0, _END) and place not in seen and place + 2 < len(config) and config[place] != _END:
        if config[place] == _VENDOR_SPECIFIC:
            return _parse_capability(config[place : place + config[place + 2]])
        seen.add(place)
        place = config[place + 1]
    return VgpuGuest()


def _parse_capability(capability: bytes) -> VgpuGuest:
    if capability[3:5] != b"VF":
        return VgpuGuest()
    place = _RECORDS_OFFSET
    while place + 1 < len(capability):
        kind, length = capability[place], capability[place + 1]
        if kind == _DRIVER_RECORD:
            texts = capability[place + 2 : place + length]
            return VgpuGuest(
                present=True,
                host_driver_version=_decode(texts[:_TEXT_BYTES]),
                host_driver_branch=_decode(texts[_TEXT_BYTES : 2 * _TEXT_BYTES]),
            )
        if length < 2:
            break
        place += length
    return VgpuGuest(present=True)


def _decode(text: bytes) -> str:
    return text.partition(b"\0")[0].decode("ascii", "replace")


def _find_vgpu(places: list[Path]) -> VgpuGuest | None:
    found = VgpuGuest()
    for place in places:
        guest = parse_vgpu(read_raw_attribute(place / "config", limit_bytes=_CONFIG_BYTES))
        if guest is None:
            return None
        found = guest if guest.present else found
    return found


def _read_function(place: Path) -> tuple[VendorFunction, ...]:
    try:
        address = parse_pci_address(place.name)
    except ValueError:
        # Only the kernel makes these names; a name that is no address is no function.
        return ()
    return (VendorFunction(address=address, pci_class=f"{(read_number(place / 'class') or 0) >> 8:04x}"),)


def _read_os_release(host_root: Path) -> dict[str, str]:
    for path in _OS_RELEASE:
        text = read_attribute(host_root / path)
        if text:
            return dict(_parse_assignment(line) for line in text.splitlines() if "=" in line)
    return {}


def _parse_assignment(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    try:
        words = shlex.split(value)
    except ValueError:
        words = [value]
    return name.strip(), " ".join(words)
