"""Node labels, wanted and applied, and the node's properties apart from GPUs, from which labels are made."""

from typing import Final

from msgspec import field

from nodeagent.model.cluster import DEVICE_PREFIX
from nodeagent.model.ids import PciAddress
from nodeagent.model.nvidia import LABEL_PREFIX
from nodeagent.model.values import Value

FEATURE: Final = "feature.node.kubernetes.io/"
"""Of node feature discovery's labels."""
OWN_LABELS: Final = (LABEL_PREFIX, FEATURE, DEVICE_PREFIX)
"""The beginnings of all keys whose values the agent finds by itself."""
GPU_MODEL_LABEL: Final = "gaia.tencent.com/gpu-model"
"""What gpu-manager calls the model."""


class LabelState(Value, frozen=True):
    """State: the labels wanted for the node, and the labels applied."""

    wanted: dict[str, str]
    applied: dict[str, str]
    sink: str = ""
    since_seconds: float = 0.0
    last_error: str = ""
    held_back: dict[str, str] = field(default_factory=dict)
    """Values wanted once they have lasted, by key; empty for a label to be removed."""


class VendorFunction(Value, frozen=True):
    """A function of the GPU vendor's on the PCI bus, whatever its purpose."""

    address: PciAddress
    pci_class: str
    """Base class and subclass in four hex digits: 0300 VGA controller, 0302 3D controller, 0680 NVSwitch."""


class VgpuGuest(Value, frozen=True):
    """The hypervisor's report on the host's driver to its guest; empty where the GPU is no vGPU."""

    present: bool = False
    host_driver_version: str = ""
    host_driver_branch: str = ""


class NodeFacts(Value, frozen=True):
    """The node as its firmware, kernel and distribution describe it; an unreadable fact is empty."""

    machine_type: str = ""
    kernel_release: str = ""
    os_id: str = ""
    os_version_id: str = ""
    functions: tuple[VendorFunction, ...] = ()
    vgpu: VgpuGuest | None = None
    """`None` where the PCI bus could not be asked."""
