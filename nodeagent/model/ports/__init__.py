"""Questions of components to one another that wait for an answer. Wired in `app`; all else travels on the bus.

Each port is implemented by an edge and used by a component; the simulation implements the same ports.

A call that cannot do its work raises a `NodeagentError` that says why. A method names its errors only where its callers
tell them apart, or must know what is left behind.
"""

from nodeagent.model.ports.claims import ClaimApi, ClaimDriver, ClaimedSpec, ClaimSpecs, MetadataFiles
from nodeagent.model.ports.cluster import ClientPausing, ConfigurationControl, LabelFile, PodEviction
from nodeagent.model.ports.containers import (
    ContainerReceipts,
    ContainerRuntime,
    DeviceFractionSpecs,
    DriverFileSource,
    FractionFolders,
    FractionSpecs,
    ReceiptFiles,
    ShimHost,
    VgpuLibrary,
    Withdraw,
)
from nodeagent.model.ports.hardware import (
    DeviceNodes,
    DriverModules,
    DriverProbe,
    DriverTool,
    FaultInjector,
    GpuAccess,
    GpuEvent,
    GpuPartitioning,
    GpuProver,
    GpuSource,
    ModuleLoader,
    PartitionSession,
    ProcessEnding,
    ProcessPlace,
    ProcessPlaces,
)
from nodeagent.model.ports.journal import (
    AllocationModeStore,
    ChangeJournal,
    ClaimJournal,
    CordonStore,
    FractionJournal,
    RepairJournal,
)
from nodeagent.model.ports.kubelet import (
    AllocationJournal,
    ContainerDevices,
    DevicePlugin,
    KubeletCheckpoint,
    KubeletPod,
    PluginSource,
    PodListing,
)
from nodeagent.model.ports.mps import MpsClaims, MpsHost
from nodeagent.model.ports.partitions import PartitionMaking

__all__ = [
    "AllocationJournal",
    "AllocationModeStore",
    "ChangeJournal",
    "ClaimApi",
    "ClaimDriver",
    "ClaimJournal",
    "ClaimSpecs",
    "ClaimedSpec",
    "ClientPausing",
    "ConfigurationControl",
    "ContainerDevices",
    "ContainerReceipts",
    "ContainerRuntime",
    "CordonStore",
    "DeviceFractionSpecs",
    "DeviceNodes",
    "DevicePlugin",
    "DriverFileSource",
    "DriverModules",
    "DriverProbe",
    "DriverTool",
    "FaultInjector",
    "FractionFolders",
    "FractionJournal",
    "FractionSpecs",
    "GpuAccess",
    "GpuEvent",
    "GpuPartitioning",
    "GpuProver",
    "GpuSource",
    "KubeletCheckpoint",
    "KubeletPod",
    "LabelFile",
    "MetadataFiles",
    "ModuleLoader",
    "MpsClaims",
    "MpsHost",
    "PartitionMaking",
    "PartitionSession",
    "PluginSource",
    "PodEviction",
    "PodListing",
    "ProcessEnding",
    "ProcessPlace",
    "ProcessPlaces",
    "ReceiptFiles",
    "RepairJournal",
    "ShimHost",
    "VgpuLibrary",
    "Withdraw",
]
