"""Whether the driver works: the evidence of the edges, and the verdict that the driver component draws from it."""

from enum import StrEnum

from msgspec import field

from nodeagent.model.ids import PciAddress
from nodeagent.model.nvidia import LIBRARY
from nodeagent.model.values import Value


class DriverPhase(StrEnum):
    """The driver's condition, a single word for people and scripts."""

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
    """A GPU's function on the PCI bus, as sysfs shows it."""

    address: PciAddress
    device_id: int
    bound_driver: str = ""
    numa_node: int | None = None


class LibraryOutcome(StrEnum):
    """How a call of the driver's library went."""

    WORKS = "works"
    UNLOADABLE = "unloadable"
    """The agent could not load the library at all."""
    NOT_FOUND = "not_found"
    """The library itself misses a part of the driver's libraries."""
    NO_PERMISSION = "no_permission"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    NO_GPU = "no_gpu"
    VERSION_MISMATCH = "version_mismatch"
    TIMEOUT = "timeout"
    FAILED = "failed"


class LibraryAnswer(Value, frozen=True):
    """The answer of the driver's library to whether it works."""

    name: str = LIBRARY
    """The library, as people call it."""
    outcome: LibraryOutcome = LibraryOutcome.WORKS
    code: int = 0
    """The library's own return code, for people."""
    message: str = ""
    driver_version: str = ""
    version: str = ""
    cuda_version: tuple[int, int] | None = None
    gpu_count: int = 0
    library_path: str = ""


class DriverEvidence(Value, frozen=True):
    """Everything observed in a single poll of the driver, without conclusions."""

    pci_functions: tuple[PciFunction, ...] = ()
    module_loaded: bool = False
    module_version: str = ""
    open_module: bool | None = None
    nouveau_loaded: bool = False
    library_version: str = ""
    """Version in the file name of the library for the next load; empty where the name has none."""
    nodes_missing: tuple[str, ...] = ()
    library: LibraryAnswer | None = None
    """`None` when the library was not asked, because of a release or a stuck call."""
    nvswitch_count: int = 0
    fabric_pending: tuple[str, ...] = ()
    """GPUs with an uncompleted fabric registration, by UUID."""
    cuda_failure: str = ""
    """The CUDA smoke test's message when the test failed; empty when it passed, was not due, or is off."""
    stuck: str = ""
    """The call that has not come back, in words; empty without such a call."""
    released: str = ""
    """Why the handles were released on purpose; empty when they were not."""
    platform_unsupported: str = ""


class DriverState(Value, frozen=True):
    """State: whether GPUs can be used on the node, and if not, why, with the remedy."""

    phase: DriverPhase
    detail: str = ""
    remedy: str = ""
    driver_version: str = ""
    interface_version: str = field(default="", name="nvml_version")
    """Of the driver's library; the name in JSON is older than the word."""
    cuda_version: tuple[int, int] | None = None
    module_version: str = ""
    library_path: str = ""
    open_module: bool | None = None
    pci_gpus: tuple[PciAddress, ...] = ()
    """The GPUs on the PCI bus, whatever the driver says."""
    is_needed: bool = True
    """Whether the node should have GPUs; a node that has none and needs none is no fault, and waits for no driver."""

    @property
    def is_done_without(self) -> bool:
        """Whether there is no GPU, and need not be any."""
        return self.phase is DriverPhase.NO_HARDWARE and not self.is_needed

    @property
    def ready(self) -> bool:
        """Whether GPUs can be handed out."""
        return self.phase is DriverPhase.READY

    @property
    def obstacle(self) -> str:
        """Why the driver keeps devices from being handed out; empty when some device can be.

        A stuck driver may be stuck with a single GPU: the health component judges which GPUs are concerned.
        """
        if self.ready or self.phase is DriverPhase.STUCK:
            return ""
        return f"the driver is not ready: {self.detail or self.phase}"


class NodeRepair(Value, frozen=True):
    """The result of a round of repair of the device nodes."""

    done: tuple[str, ...] = ()
    """Each change in words."""
    failed: tuple[str, ...] = ()
    """Each failed change, with the reason and the remedy."""
