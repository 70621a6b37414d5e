"""Whether the driver works: the evidence the edges collect, and the verdict the driver component draws from it."""

from enum import StrEnum

from nodeagent.model.ids import PciAddress
from nodeagent.model.values import Value


class DriverPhase(StrEnum):
    """The driver's condition, one word for people and scripts."""

    READY = "ready"
    NO_HARDWARE = "no_hardware"
    NOT_LOADED = "not_loaded"
    WRONG_DRIVER = "wrong_driver"
    LIBRARY_MISSING = "library_missing"
    VERSION_MISMATCH = "version_mismatch"
    NO_PERMISSION = "no_permission"
    NODES_MISSING = "nodes_missing"
    FABRIC_NOT_READY = "fabric_not_ready"
    STUCK = "stuck"
    RELEASED = "released"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


class PciFunction(Value, frozen=True):
    """An NVIDIA display function on the PCI bus, as sysfs shows it."""

    address: PciAddress
    device_id: int
    bound_driver: str = ""
    numa_node: int | None = None


class NvmlAnswer(Value, frozen=True):
    """What the library said when asked whether it works."""

    code: int
    """NVML's return code, 0 for success; -1 when the library could not be loaded at all."""
    message: str = ""
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: tuple[int, int] | None = None
    gpu_count: int = 0
    library_path: str = ""


class DriverEvidence(Value, frozen=True):
    """Everything observed in one look at the driver; no conclusion in it."""

    pci_functions: tuple[PciFunction, ...] = ()
    module_loaded: bool = False
    module_version: str = ""
    open_module: bool | None = None
    nouveau_loaded: bool = False
    library_version: str = ""
    """Version in the file name of the library that would be loaded; empty where it has none."""
    nodes_missing: tuple[str, ...] = ()
    nvml: NvmlAnswer | None = None
    """`None` when the library was not asked, because it was released or is stuck."""
    nvswitch_count: int = 0
    fabric_pending: tuple[str, ...] = ()
    """GPUs whose fabric registration is not completed, by UUID."""
    cuda_failure: str = ""
    """What the CUDA smoke test said when it failed; empty when it passed, was not due, or is off."""
    stuck: str = ""
    """Which call has not come back, in words; empty when none."""
    released: str = ""
    """Why the handles were given up on purpose; empty when they were not."""
    platform_unsupported: str = ""


class DriverState(Value, frozen=True):
    """State: whether GPUs can be used on this node, and if not, why and what to do."""

    phase: DriverPhase
    detail: str = ""
    remedy: str = ""
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: tuple[int, int] | None = None
    module_version: str = ""
    library_path: str = ""
    open_module: bool | None = None
    pci_gpus: tuple[PciAddress, ...] = ()
    """The GPUs that the PCI bus shows, whatever the driver says."""
    is_needed: bool = True
    """Whether the node should have GPUs; where it has none and need not, nothing is wrong and nothing waits."""

    @property
    def is_done_without(self) -> bool:
        """Whether there is no GPU, and there need not be one."""
        return self.phase is DriverPhase.NO_HARDWARE and not self.is_needed

    @property
    def ready(self) -> bool:
        """Whether GPUs can be handed out."""
        return self.phase is DriverPhase.READY

    @property
    def obstacle(self) -> str:
        """Why nothing can be handed out for the driver's sake; empty when something can.

        A driver that is stuck may be so with one GPU: which ones is for health to say.
        """
        if self.ready or self.phase is DriverPhase.STUCK:
            return ""
        return f"the driver is not ready: {self.detail or self.phase}"


class NodeRepair(Value, frozen=True):
    """What one round of repair of the device nodes did."""

    done: tuple[str, ...] = ()
    """Each change in words."""
    failed: tuple[str, ...] = ()
    """Each change that could not be made, with the reason and the remedy."""
