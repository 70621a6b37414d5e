"""What one part may ask of another and wait for. Wired in `app`; everything else travels on the bus.

Each port is implemented by an edge and used by a component; the simulation implements the same ones.
"""

from nodeagent.model.ports.cluster import LabelFile, NodeApi, PodApi
from nodeagent.model.ports.containers import (
    ContainerRuntime,
    DriverFileSource,
    PartFolders,
    PartLibrary,
    PartSpecs,
    ProgramInstaller,
    ShimHost,
    SpecDirectories,
    Withdraw,
)
from nodeagent.model.ports.control import AgentControl, ConfigurationControl, PartSetting
from nodeagent.model.ports.hardware import (
    DeviceNodes,
    DoorChoosing,
    DriverProbe,
    FaultInjector,
    GpuClearing,
    GpuEvent,
    GpuForgetting,
    GpuPartitioning,
    GpuSource,
    LayoutApplying,
    NodeFactSource,
    PartitionSession,
    ProcessPlace,
    ProcessPlaces,
    ValidationMarkers,
)
from nodeagent.model.ports.journal import ChangeKeeper, GpuDoorKeeper, PartLedger
from nodeagent.model.ports.kubelet import (
    AllocationJournal,
    ContainerDevices,
    DevicePlugin,
    KubeletCheckpoint,
    PluginSource,
    PodListing,
    PodResources,
)

__all__ = [
    "AgentControl",
    "AllocationJournal",
    "ChangeKeeper",
    "ConfigurationControl",
    "ContainerDevices",
    "ContainerRuntime",
    "DeviceNodes",
    "DevicePlugin",
    "DoorChoosing",
    "DriverFileSource",
    "DriverProbe",
    "FaultInjector",
    "GpuClearing",
    "GpuDoorKeeper",
    "GpuEvent",
    "GpuForgetting",
    "GpuPartitioning",
    "GpuSource",
    "KubeletCheckpoint",
    "LabelFile",
    "LayoutApplying",
    "NodeApi",
    "NodeFactSource",
    "PartFolders",
    "PartLedger",
    "PartLibrary",
    "PartSetting",
    "PartSpecs",
    "PartitionSession",
    "PluginSource",
    "PodApi",
    "PodListing",
    "PodResources",
    "ProcessPlace",
    "ProcessPlaces",
    "ProgramInstaller",
    "ShimHost",
    "SpecDirectories",
    "ValidationMarkers",
    "Withdraw",
]
