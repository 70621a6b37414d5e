"""THE list of what travels on the bus; `docs/events.md` is generated from it.

States are nouns, retained and whole.
Facts are past participles: they happened, once, and are queued for whoever listens.
What must not be lost does not ride the bus: it is written first and published as written.
"""

from nodeagent.model.allocation import AllocationTable, ClaimTable, PodIdentity
from nodeagent.model.cluster import ClusterLink, ClusterNode, ClusterWishes, PodLabelTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.journal import ChosenDoors, PartTable
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Door, Offering
from nodeagent.model.parts import PartOffers, PartReasons
from nodeagent.model.plugin import PluginState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.telemetry import EventWatch, NodeSample
from nodeagent.model.usage import PartUsage
from nodeagent.model.values import Value


class XidReported(Value, frozen=True):
    """The driver reported an XID error."""

    gpu: GpuUuid
    xid: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    source: str = "nvml"
    """`nvml` or `kernel_log`."""
    message: str = ""


class GpuEventReported(Value, frozen=True):
    """The driver reported something other than an XID, or its reports can be heard again."""

    gpu: GpuUuid
    kind: str
    """What NVML calls it: `double_bit_ecc`, `single_bit_ecc_storm`, `dram_retirement`, `dram_retirement_failure`,
    `non_fatal_poison`, `fatal_poison`, `mig_layout`, `recovery_action`, `unavailable`; and `watch_resumed`, which says
    that others may have been missed. The simulation also reports `gpu_lost`, `gpu_back`, `bind` and `unbind`."""
    data: int = 0
    """What came with it: of `recovery_action` the action, NVML's field 230."""


class GpuAppeared(Value, frozen=True):
    """A GPU is in the inventory that was not there before."""

    gpu: GpuUuid
    generation: int


class GpuVanished(Value, frozen=True):
    """A GPU is gone from the inventory, or no longer answers."""

    gpu: GpuUuid
    generation: int
    reason: str = ""
    is_gone: bool = False
    """Whether it is no longer in its slot; one that is there and does not answer is lost."""


class MigLayoutChanged(Value, frozen=True):
    """The MIG devices of a GPU are others than before."""

    gpu: GpuUuid
    generation: int


class MigChangeEnded(Value, frozen=True):
    """A GPU was cut otherwise, or was to be; what became of it was written down first."""

    gpu: GpuUuid
    layout: str
    outcome: str
    """`done`, `undone` where it is as it was before, `half` where it is neither, `reboot` where its mode waits."""
    detail: str = ""


class DriverChanged(Value, frozen=True):
    """The driver's phase or version is another than before."""

    before: DriverPhase
    after: DriverPhase
    detail: str = ""


class GpuCleared(Value, frozen=True):
    """A person took a GPU back into service; it was written down first."""

    gpu: GpuUuid
    who: str
    reason: str
    cleared: tuple[str, ...] = ()


class GpuForgotten(Value, frozen=True):
    """A person said that a GPU which had vanished is gone for good."""

    gpu: GpuUuid
    who: str


class DoorChosen(Value, frozen=True):
    """A person said by which door a GPU is to be given out; it was written down first."""

    gpu: GpuUuid
    door: str | None
    """`None` where the configuration decides again."""
    who: str


class DoorChanged(Value, frozen=True):
    """A GPU is given out by another door than before."""

    gpu: GpuUuid
    before: Door
    after: Door
    reason: str = ""


class VerdictChanged(Value, frozen=True):
    """A device's health verdict is another than before."""

    device: DeviceUuid
    before: Verdict
    after: Verdict
    reason: str = ""


class CdiSpecsWritten(Value, frozen=True):
    """CDI specifications were written or taken away, because they were not what they should be."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    generation: int


class RuntimeConfigured(Value, frozen=True):
    """The container runtime's configuration was written; it counts from the runtime's next start."""

    paths: tuple[str, ...]
    repair: bool = False
    """Whether somebody had undone it."""
    unproved: str = ""
    """Why it could not be shown on the side that the runtime comes up with it; empty when it was."""


class RuntimeRestarted(Value, frozen=True):
    """The container runtime was restarted, and rolled back where that failed."""

    command: str
    failure: str = ""
    """Why it was rolled back; empty when all is well."""


class DevicesAdvertised(Value, frozen=True):
    """The kubelet was sent a list of devices."""

    resource: ResourceName
    healthy: int
    total: int


class DevicesAllocated(Value, frozen=True):
    """Devices were handed to a container; the journal held it before the kubelet was told."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    number: int


class DevicesFreed(Value, frozen=True):
    """A container's devices are free again."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    number: int


class AllocationRefused(Value, frozen=True):
    """The kubelet asked for devices and was told no."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    reason: str


class AllocationDiffered(Value, frozen=True):
    """The journal and the kubelet did not agree on who holds what."""

    kind: str
    """`missing` in the journal, `orphan` in it, `conflict`, or `forgotten` by the kubelet."""
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    detail: str


class LabelsApplied(Value, frozen=True):
    """Node labels were written to a sink."""

    sink: str
    changed: tuple[str, ...]


class LabelsContested(Value, frozen=True):
    """Somebody else writes labels of this node otherwise than we would; they are left to them."""

    keys: tuple[str, ...]


class ConfigurationReloaded(Value, frozen=True):
    """A new configuration was read; what could change while running has changed."""

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class ConfigurationRejected(Value, frozen=True):
    """A new configuration was read and is invalid; the one before stays in force."""

    problems: tuple[str, ...]


class WishRefused(Value, frozen=True):
    """The cluster asks something of this node, by a label, that it does not get."""

    label: str
    value: str
    reason: str


class FaultInjected(Value, frozen=True):
    """A person asked the simulation to misbehave."""

    fault: str
    target: str = ""


class PartBound(Value, frozen=True):
    """A container was given its parts of GPUs."""

    number: int
    pod: PodIdentity
    container: str
    gpus: tuple[GpuUuid, ...]
    reason: str


class PartReleased(Value, frozen=True):
    """A binding has ended, or a promise that nobody redeemed was taken back."""

    number: int
    reason: str


class PartRefused(Value, frozen=True):
    """Parts of GPUs were not promised, or a container that has the promise must wait."""

    resource: ResourceName
    count: int
    reason: str


STATES: tuple[type[Value], ...] = (
    DriverState,
    Inventory,
    NodeSample,
    EventWatch,
    HealthReport,
    RuntimeState,
    CdiState,
    PluginState,
    Offering,
    MigState,
    AllocationTable,
    ChosenDoors,
    PartTable,
    PartOffers,
    PartReasons,
    PartUsage,
    ClaimTable,
    LabelState,
    ClusterNode,
    ClusterWishes,
    ClusterLink,
    PodLabelTable,
)

FACTS: tuple[type[Value], ...] = (
    XidReported,
    GpuEventReported,
    GpuAppeared,
    GpuVanished,
    MigLayoutChanged,
    MigChangeEnded,
    DriverChanged,
    VerdictChanged,
    CdiSpecsWritten,
    RuntimeConfigured,
    RuntimeRestarted,
    GpuCleared,
    GpuForgotten,
    DoorChosen,
    DoorChanged,
    DevicesAdvertised,
    DevicesAllocated,
    DevicesFreed,
    PartBound,
    PartReleased,
    PartRefused,
    AllocationRefused,
    AllocationDiffered,
    LabelsApplied,
    LabelsContested,
    ConfigurationReloaded,
    ConfigurationRejected,
    WishRefused,
    FaultInjected,
)
