"""What one part may ask of another and wait for. Wired in `app`; everything else travels on the bus.

Each port is implemented by an edge and used by a component; the simulation implements the same ones.
"""

from nodeagent.model.ports.cluster import LabelFile, NodeApi, PodApi
from nodeagent.model.ports.containers import (
    ContainerRuntime,
    DriverFileSource,
    HookInstaller,
    PartFolders,
    PartSpecs,
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
    GpuSource,
    NodeFactSource,
    ProcessPlace,
    ProcessPlaces,
    ValidationMarkers,
)
from nodeagent.model.ports.journal import DoorMemory, PartLedger
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
    "ConfigurationControl",
    "ContainerDevices",
    "ContainerRuntime",
    "DeviceNodes",
    "DevicePlugin",
    "DoorChoosing",
    "DoorMemory",
    "DriverFileSource",
    "DriverProbe",
    "FaultInjector",
    "GpuClearing",
    "GpuEvent",
    "GpuForgetting",
    "GpuSource",
    "HookInstaller",
    "KubeletCheckpoint",
    "LabelFile",
    "NodeApi",
    "NodeFactSource",
    "PartFolders",
    "PartLedger",
    "PartSetting",
    "PartSpecs",
    "PluginSource",
    "PodApi",
    "PodListing",
    "PodResources",
    "ProcessPlace",
    "ProcessPlaces",
    "SpecDirectories",
    "ValidationMarkers",
    "Withdraw",
]
