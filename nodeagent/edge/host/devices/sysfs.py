"""The PCI bus as sysfs shows it: NVIDIA's functions, their drivers, and whether a card still answers.

Owns the reading of /sys/bus/pci. Refuses to open a GPU: a hanging card must not hang a count of cards.
Reading the configuration space of a dying card may block all the same, so callers on the event loop use a thread.
"""

from pathlib import Path

from nodeagent.edge.host.devices.gpu_arrival import NVIDIA_VENDOR
from nodeagent.edge.host.files.pseudo_file import list_names, read_link_name, read_number, read_raw_attribute
from nodeagent.model.driver import PciFunction
from nodeagent.model.ids import PciAddress, parse_pci_address
from nodeagent.model.values import Value

_DISPLAY_CLASS = 0x03
_OTHER_BRIDGE = 0x0680
_OFF_THE_BUS = b"\xff\xff\xff\xff"
PCI_DEVICES = Path("bus/pci/devices")


class PciFunctions(Value, frozen=True):
    """NVIDIA's functions on the bus, each kind in the order of addresses."""

    gpus: tuple[PciFunction, ...] = ()
    switches: tuple[PciFunction, ...] = ()
    """NVSwitches of this node's own board."""
    fallen: tuple[PciAddress, ...] = ()
    """GPUs that fell off the bus: their configuration space reads as all ones."""


def read_pci_functions(sys_root: Path = Path("/sys")) -> PciFunctions:
    """Find NVIDIA's GPUs and NVSwitches.

    Virtual functions that a vGPU host has split off are left out: the GPUs are the guests', not this node's.
    """
    directory = sys_root / PCI_DEVICES
    gpus: list[PciFunction] = []
    switches: list[PciFunction] = []
    for name in list_names(directory):
        place = directory / name
        if read_number(place / "vendor") != NVIDIA_VENDOR or (place / "physfn").exists():
            continue
        pci_class = read_number(place / "class") or 0
        if pci_class >> 16 == _DISPLAY_CLASS:
            gpus += _read_function(place)
        elif pci_class >> 8 == _OTHER_BRIDGE:
            switches += _read_function(place)
    fallen = tuple(gpu.address for gpu in gpus if has_fallen_off(gpu.address, sys_root))
    return PciFunctions(gpus=tuple(gpus), switches=tuple(switches), fallen=fallen)


def has_fallen_off(address: PciAddress, sys_root: Path = Path("/sys")) -> bool:
    """Whether the card answers on the bus no longer: the first bytes of its configuration space are all ones."""
    return read_raw_attribute(sys_root / PCI_DEVICES / address / "config", limit_bytes=4) == _OFF_THE_BUS


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
