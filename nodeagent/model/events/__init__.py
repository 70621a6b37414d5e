"""THE list of events on the bus; `docs/events.md` is generated from it.

States are nouns, retained and whole.
Facts are past participles: they happened, once, and are queued for every listener.
Facts that must not be lost do not depend on the bus: they are journalled first and published as journalled.
"""

from nodeagent.model.allocation import AllocationTable, ClaimTable
from nodeagent.model.claims import ClaimStanding, ReadyClaims
from nodeagent.model.cluster import (
    ClusterLink,
    ClusterNode,
    NodeRequests,
    PodConditionCounts,
    PodEventCounts,
    PodLabelTable,
    ReceiptCounts,
)
from nodeagent.model.cordons import CordonTable
from nodeagent.model.devices import DeviceReadingTable, DeviceTable
from nodeagent.model.driver import DriverState
from nodeagent.model.events.admissions import (
    AllocationDiffered,
    AllocationRefused,
    ClaimPrepared,
    ClaimRefused,
    ClaimUnprepared,
    DevicesAdvertised,
    DevicesAllocated,
    DevicesFreed,
    FractionBound,
    FractionProcessEnded,
    FractionRefused,
    FractionReleased,
)
from nodeagent.model.events.hardware import (
    DriverChanged,
    DriverUpgradeStepped,
    FaultInjected,
    GpuAppeared,
    GpuCleared,
    GpuEventReported,
    GpuFaultReported,
    GpuForgotten,
    GpuVanished,
    MigLayoutChanged,
    RepairStepped,
    VerdictChanged,
    XidReported,
)
from nodeagent.model.events.node import (
    CdiSpecsWritten,
    ConfigurationRejected,
    ConfigurationReloaded,
    DeviceFound,
    DeviceJudged,
    DeviceLost,
    LabelsApplied,
    LabelsContested,
    NodeRequestRefused,
    RefusedPodDeleted,
    RuntimeConfigured,
    RuntimeRestarted,
    SlicesWritten,
)
from nodeagent.model.events.ways import (
    AllocationModeChanged,
    AllocationModeChosen,
    GpuCordoned,
    GpuSeenStale,
    GpuUncordoned,
    MigChangeEnded,
    MpsDaemonEnded,
    MpsDaemonStarted,
)
from nodeagent.model.fractions import FractionDecisions, FractionOffers
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import ChosenAllocationModes, FractionTable
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.proof import GpuProofs
from nodeagent.model.repairs import RepairState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import EventWatch, NodeSample
from nodeagent.model.upgrades import UpgradeState
from nodeagent.model.usage import FractionUsage
from nodeagent.model.values import Value

__all__ = [
    "FACTS",
    "STATES",
    "AllocationDiffered",
    "AllocationModeChanged",
    "AllocationModeChosen",
    "AllocationRefused",
    "CdiSpecsWritten",
    "ClaimPrepared",
    "ClaimRefused",
    "ClaimUnprepared",
    "ConfigurationRejected",
    "ConfigurationReloaded",
    "DeviceFound",
    "DeviceJudged",
    "DeviceLost",
    "DevicesAdvertised",
    "DevicesAllocated",
    "DevicesFreed",
    "DriverChanged",
    "DriverUpgradeStepped",
    "FaultInjected",
    "FractionBound",
    "FractionProcessEnded",
    "FractionRefused",
    "FractionReleased",
    "GpuAppeared",
    "GpuCleared",
    "GpuCordoned",
    "GpuEventReported",
    "GpuFaultReported",
    "GpuForgotten",
    "GpuSeenStale",
    "GpuUncordoned",
    "GpuVanished",
    "LabelsApplied",
    "LabelsContested",
    "MigChangeEnded",
    "MigLayoutChanged",
    "MpsDaemonEnded",
    "MpsDaemonStarted",
    "NodeRequestRefused",
    "RefusedPodDeleted",
    "RepairStepped",
    "RuntimeConfigured",
    "RuntimeRestarted",
    "SlicesWritten",
    "VerdictChanged",
    "XidReported",
]

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
    DeviceTable,
    DeviceReadingTable,
    MpsState,
    AllocationTable,
    ChosenAllocationModes,
    CordonTable,
    FractionTable,
    FractionOffers,
    FractionDecisions,
    FractionUsage,
    ClaimTable,
    ReadyClaims,
    ClaimStanding,
    PublishedSlices,
    LabelState,
    ClusterNode,
    NodeRequests,
    ClusterLink,
    PodLabelTable,
    PodEventCounts,
    PodConditionCounts,
    ReceiptCounts,
    RepairState,
    UpgradeState,
    GpuProofs,
)

FACTS: tuple[type[Value], ...] = (
    XidReported,
    GpuEventReported,
    GpuFaultReported,
    GpuAppeared,
    GpuVanished,
    MigLayoutChanged,
    GpuSeenStale,
    MigChangeEnded,
    MpsDaemonStarted,
    MpsDaemonEnded,
    DriverChanged,
    VerdictChanged,
    RepairStepped,
    DriverUpgradeStepped,
    CdiSpecsWritten,
    RuntimeConfigured,
    RuntimeRestarted,
    GpuCleared,
    GpuForgotten,
    AllocationModeChosen,
    AllocationModeChanged,
    GpuCordoned,
    GpuUncordoned,
    DevicesAdvertised,
    DevicesAllocated,
    DevicesFreed,
    FractionBound,
    FractionReleased,
    FractionProcessEnded,
    FractionRefused,
    DeviceFound,
    DeviceLost,
    DeviceJudged,
    ClaimPrepared,
    ClaimUnprepared,
    ClaimRefused,
    AllocationRefused,
    AllocationDiffered,
    SlicesWritten,
    LabelsApplied,
    LabelsContested,
    ConfigurationReloaded,
    ConfigurationRejected,
    NodeRequestRefused,
    RefusedPodDeleted,
    FaultInjected,
)
