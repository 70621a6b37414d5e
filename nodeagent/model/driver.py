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


class RefusalKind(StrEnum):
    """Why the kernel or the driver's kernel module said no, as the kernel log has it."""

    SIGNATURE = "signature"
    """The kernel does not trust the module's signature."""
    OTHER_KERNEL = "other_kernel"
    """The module was built for another kernel."""
    CLAIMED = "claimed"
    """Another kernel driver has the GPU."""
    OPEN_NEEDED = "open_needed"
    """The GPU works with the open kernel module alone."""
    OPEN_UNFIT = "open_unfit"
    """The GPU does not work with the open kernel module."""
    UNKNOWN_GPU = "unknown_gpu"
    """The driver's release does not know the GPU."""
    NO_ADDRESSES = "no_addresses"
    """The firmware gave the GPU's memory no addresses."""


class ModuleRefusal(Value, frozen=True):
    """The kernel log's last word on the driver's kernel module, after the last time that the module was loaded."""

    kind: RefusalKind
    line: str
    """The line of the log, without line breaks."""


class ModuleSearch(Value, frozen=True):
    """The driver's kernel module on the host; read only while the driver does not work."""

    kernel: str = ""
    """The running kernel's release; empty where the modules of the host cannot be seen."""
    file: str = ""
    """The module in the running kernel's table; empty without one."""
    table_time: int = 0
    """Time of the last change of the table, in nanoseconds."""
    other_kernels: tuple[str, ...] = ()
    """Other kernels with a module of the driver."""
    dkms: tuple[str, ...] = ()
    """The driver's sources that DKMS builds modules of, such as `nvidia/580.65.06`."""
    headers: bool = True
    """Whether the running kernel's headers are installed, without which DKMS builds nothing."""
    secure_boot: bool | None = None
    """`None` where the firmware does not say."""
    refusal: ModuleRefusal | None = None


class LoadedModule(Value, frozen=True):
    """A kernel module that is loaded."""

    name: str
    """The kernel's own name, with underscores."""
    references: int | None
    """How often the module is used, by other modules too; `None` for a module that is just coming or going."""
    holders: tuple[str, ...] = ()
    """The modules that need this one."""


class DriverEvidence(Value, frozen=True):
    """Everything observed in a single poll of the driver, without conclusions."""

    pci_functions: tuple[PciFunction, ...] = ()
    module_loaded: bool = False
    module_version: str = ""
    open_module: bool | None = None
    nouveau_loaded: bool = False
    unified_memory_loaded: bool = False
    """Whether the module for unified memory is loaded, without which CUDA does not work."""
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
    module_search: ModuleSearch | None = None
    """`None` while the driver works, and where no host was searched."""


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
    library_version: str = ""
    """Of the library that is installed; empty where the library's file name has none."""
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


class WorkloadResult(Value, frozen=True):
    """State: whether a pod with a GPU works on this node, by the last pod that was made to find out."""

    passed: bool
    is_busy: bool = False
    """Whether no GPU was free, so that the pod showed nothing."""
    detail: str = ""
