"""NVIDIA's GPUs on the PCI bus as sysfs shows the bus, with the driver of each.

Owns the reading of /sys/bus/pci. Refuses to open a GPU: a hanging card must not hang a count of cards.
"""

from pathlib import Path

from nodeagent.edge.host.devices.gpu_arrival import NVIDIA_VENDOR
from nodeagent.edge.host.files.pseudo_file import list_names, read_link_name, read_number
from nodeagent.model.driver import PciFunction
from nodeagent.model.ids import parse_pci_address

_DISPLAY_CLASS = 0x03
PCI_DEVICES = Path("bus/pci/devices")


def read_gpu_functions(sys_root: Path = Path("/sys")) -> tuple[PciFunction, ...]:
    """NVIDIA's GPUs on the bus, in the order of addresses.

    Virtual functions that a vGPU host has split off are left out: the GPUs are the guests', not this node's.
    """
    gpus: list[PciFunction] = []
    for name in list_names(sys_root / PCI_DEVICES):
        place = sys_root / PCI_DEVICES / name
        if read_number(place / "vendor") != NVIDIA_VENDOR or (place / "physfn").exists():
            continue
        if (read_number(place / "class") or 0) >> 16 == _DISPLAY_CLASS:
            gpus += _read_function(place)
    return tuple(gpus)


def _read_function(place: Path) -> tuple[PciFunction, ...]:
    try:
        address = parse_pci_address(place.name)
    except ValueError:
        # Only the kernel makes these names; a name that is no address is no function.
        return ()
    numa_node = read_number(place / "numa_node")
    function = PciFunction(
        address=address,
        device_id=read_number(place / "device") or 0,
        bound_driver=read_link_name(place / "driver"),
        # -1 means that the firmware does not tell.
        numa_node=numa_node if numa_node is not None and numa_node >= 0 else None,
    )
    return (function,)
