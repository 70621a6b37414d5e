"""What one part may ask of another and wait for. Wired in `app.py`; everything else travels on the bus.

Each port is implemented by an edge and used by a component; the simulation implements the same ones.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import field

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.cdi import DriverFiles, SpecContent
from nodeagent.model.cluster import ClusterNode, NodeCondition, NodeEvent, Taint
from nodeagent.model.driver import DriverEvidence, NodeRepair
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.node_facts import NodeFacts
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, PluginOptions
from nodeagent.model.runtime import ConfigTree, FileChange, Restored, RuntimeEvidence, RuntimeKind
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.values import Value

GpuEvent = XidReported | GpuEventReported


class DriverProbe(Protocol):
    """Looks at the driver without judging it."""

    async def read_evidence(self) -> DriverEvidence:
        """Look once, bounded in time; what cannot be seen is left empty, a hung call is evidence too."""
        ...

    async def wait_change(self) -> None:
        """Return when something may have changed: a module came or went, a device node, a fault was injected."""
        ...


class DeviceNodes(Protocol):
    """The driver's device nodes on this host."""

    async def repair(self) -> NodeRepair:
        """Make every node and its link right, as far as this process may; nothing to do is the usual answer."""
        ...


class ValidationMarkers(Protocol):
    """The marker files by which other operands learn that a part of the node works."""

    async def read_markers(self, names: Sequence[str]) -> Mapping[str, str]:
        """Name and content of those that exist.

        Raises:
            NodeagentError: they cannot be read.
        """
        ...

    async def write_marker(self, name: str, content: str) -> None:
        """Put one in place, whole.

        Raises:
            NodeagentError: it cannot be written.
        """
        ...

    async def remove_marker(self, name: str) -> None:
        """Take one away; fine when it is gone already.

        Raises:
            NodeagentError: it cannot be removed.
        """
        ...

    async def wait_change(self) -> None:
        """Return when somebody may have changed or removed one."""
        ...


class DriverFileSource(Protocol):
    """The driver as it lies on the host's disk and in its /dev."""

    async def read_driver_files(self) -> DriverFiles:
        """Look once, bounded in time.

        Raises:
            NodeagentError: the file system does not answer.
        """
        ...


class SpecDirectories(Protocol):
    """The directories of CDI specifications; the agent writes in one of them."""

    async def read_specs(self) -> tuple[SpecContent, ...]:
        """Every file that a runtime would read, the lower directory first.

        Raises:
            NodeagentError: the file system does not answer.
        """
        ...

    def locate(self, name: str) -> str:
        """The path of a file of ours."""
        ...

    async def write_spec(self, name: str, content: bytes) -> None:
        """Put one in place, whole, with the directory where it is missing.

        Raises:
            NodeagentError: it cannot be written; the one before stays.
        """
        ...

    async def remove_spec(self, name: str) -> None:
        """Take one of ours away; fine when it is gone already.

        Raises:
            NodeagentError: it cannot be removed.
        """
        ...

    async def wait_change(self) -> None:
        """Return when a file has come, gone or changed since the last reading."""
        ...


class HookInstaller(Protocol):
    """Puts the hook program on the host."""

    async def install(self, path: Path) -> bool:
        """Have exactly our program there, executable; False when it was there already.

        Raises:
            NodeagentError: it cannot be put there.
        """
        ...


class ContainerRuntime(Protocol):
    """The container runtime of this node. Every call is bounded in time and fails with a `NodeagentError` only."""

    async def read_evidence(self) -> RuntimeEvidence:
        """Which runtimes there are, and what the running ones say about themselves."""
        ...

    async def read_config(self, kind: RuntimeKind, main: str, extra: tuple[str, ...] = ()) -> ConfigTree:
        """The files that it reads at its next start, in its order, and those of `extra` that exist."""
        ...

    async def wait_change(self) -> None:
        """Return when one of the files read last has changed."""
        ...

    async def check(self, kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
        """Have its own tool judge a configuration; False where it has none.

        Raises:
            NodeagentError: it would not accept it.
        """
        ...

    async def apply(self, changes: Sequence[FileChange]) -> None:
        """Write all of them or none, and remember what was there before.

        Raises:
            NodeagentError: nothing was written.
        """
        ...

    async def undo(self, changes: Sequence[FileChange]) -> None:
        """Put back what was there before these changes."""
        ...

    async def restore(self) -> Restored:
        """Give back everything that was ever changed, byte for byte."""
        ...

    async def restart(self, command: Sequence[str]) -> None:
        """Restart it.

        Raises:
            NodeagentError: it did not start.
        """
        ...


class GpuSource(Protocol):
    """The one door to GPUs; every call is bounded in time and fails with a `DriverError` only."""

    async def read_inventory(self) -> GpuReadout:
        """Enumerate all GPUs; what one of them does not tell is a reason on that one.

        Raises:
            DriverError: when no GPU at all can be asked.
        """
        ...

    async def read_sample(self) -> NodeSample:
        """Read what changes each second from all GPUs.

        Raises:
            DriverError: when no GPU at all can be asked.
        """
        ...

    def events(self) -> AsyncIterator[GpuEvent]:
        """What the driver reports by itself, until the driver is lost or released.

        Raises:
            DriverError: when events cannot be watched (any longer).
        """
        ...

    async def release(self, reason: str) -> None:
        """Give up every handle, so that the driver can be unloaded."""
        ...

    async def resume(self) -> None:
        """Take the driver back, in whatever version it now is."""
        ...


class NodeFactSource(Protocol):
    """The node apart from its GPUs."""

    async def read_facts(self) -> NodeFacts:
        """Look once; what cannot be read is empty.

        Raises:
            NodeagentError: the node's own files do not answer.
        """
        ...


class NodeApi(Protocol):
    """This node in the cluster; every call is bounded in time and fails with a `NodeagentError` only."""

    def follow_node(self) -> AsyncGenerator[ClusterNode, None]:
        """The node now and after each change that anybody makes to it; runs until something breaks.

        Raises:
            NodeagentError: it cannot be followed (any longer).
        """
        ...

    async def apply_labels(self, node: ClusterNode, labels: Mapping[str, str]) -> None:
        """Make exactly these labels ours; those of others stay.

        Raises:
            NodeagentError: they were not applied.
        """
        ...

    async def write_condition(self, condition: NodeCondition, *, changed: bool) -> None:
        """Set the node condition; `changed` says whether its status is another than before.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def write_annotation(self, key: str, value: str | None) -> None:
        """Set an annotation, or take it off.

        Raises:
            NodeagentError: it was not written.
        """
        ...

    async def change_taint(self, taint: Taint, *, present: bool) -> None:
        """Put a taint on, or take it off.

        Raises:
            NodeagentError: it was not changed.
        """
        ...

    async def write_event(self, node: ClusterNode, event: NodeEvent, count: int) -> None:
        """Tell people something that happened so many times.

        Raises:
            NodeagentError: it was not written.
        """
        ...


class LabelFile(Protocol):
    """A file of labels that another program reads."""

    async def read(self) -> str:
        """What it says; nothing when there is none.

        Raises:
            NodeagentError: it cannot be read.
        """
        ...

    async def write(self, text: str) -> None:
        """Replace it, whole.

        Raises:
            NodeagentError: it cannot be written.
        """
        ...


class FaultInjector(Protocol):
    """The simulation's door for misbehaviour on demand."""

    @property
    def known_faults(self) -> tuple[str, ...]:
        """Each fault with its arguments, as `simulate fault --help` shows them."""
        ...

    async def inject(self, fault: str, arguments: Sequence[str]) -> str:
        """Do it, and say in a sentence what was done.

        Raises:
            FaultUnknown: no such fault.
            GpuUnknown: no such GPU.
            ValueError: an argument makes no sense; the message says which and why.
        """
        ...


class AllocationJournal(Protocol):
    """The port that matters most: the kubelet is answered only after `record` has returned."""

    async def record(self, resource: ResourceName, devices: Sequence[DeviceId]) -> Allocation:
        """Make an allocation durable.

        Raises:
            DeviceHeld: a living pod surely holds one of the devices.
            JournalUnavailable: it could not be made durable.
        """
        ...

    async def identify(self, resource: ResourceName, devices: Sequence[DeviceId]) -> None:
        """Learn from the kubelet which container is about to start with these devices; never in its way."""
        ...

    def doubtful(self) -> Collection[DeviceId]:
        """Devices that the kubelet may take for free although somebody may hold them."""
        ...


class ContainerDevices(Value, frozen=True):
    """What the kubelet says one container holds of one resource."""

    pod: PodIdentity
    container: str
    resource: ResourceName
    devices: tuple[DeviceId, ...]


class DevicePlugin(Protocol):
    """One resource, as the kubelet asks about it; `edge/kubelet` carries the questions."""

    @property
    def resource(self) -> ResourceName:
        """The extended resource that this plugin offers."""
        ...

    @property
    def options(self) -> PluginOptions:
        """Which of the optional questions the kubelet should ask; fixed for the plugin's life."""
        ...

    async def wait_devices(self, known: tuple[AdvertisedDevice, ...] | None) -> tuple[AdvertisedDevice, ...]:
        """The whole device list, as soon as it differs from `known`; at once when nothing is known yet."""
        ...

    async def prefer(
        self, available: Sequence[DeviceId], must_include: Sequence[DeviceId], size: int
    ) -> Sequence[DeviceId]:
        """Which of the available devices serve one container best; odd questions get a valid answer, not an error."""
        ...

    async def allocate(self, devices: Sequence[DeviceId]) -> ContainerAnswer:
        """What one container needs in order to use these devices; returns only when the allocation is durable.

        Raises:
            AllocationError: the devices must not be handed out; the message reaches the pod's event.
        """
        ...

    async def pre_start(self, devices: Sequence[DeviceId]) -> None:
        """Called before each start of a container that holds these devices.

        Raises:
            AllocationError: the container must not start; the message reaches the pod's event.
        """
        ...


class PodListing(Value, frozen=True):
    """The kubelet's whole word on who holds what."""

    pods: tuple[PodIdentity, ...] = ()
    """All active pods, also those without devices: only so can a forgotten holder be told from one that is gone."""
    containers: tuple[ContainerDevices, ...] = ()
    """The containers that hold devices."""


class PodResources(Protocol):
    """The kubelet's own word on who holds what."""

    async def read_pods(self) -> PodListing:
        """All active pods and what their containers hold, each device once; the pods' uids are not told.

        Raises:
            NodeagentError: the kubelet cannot be asked now.
        """
        ...


class GpuClearing(Protocol):
    """Whoever judges health, asked to take a GPU back on a person's word."""

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        """Forget the faults of a GPU; says what was forgotten. What is bad at the next look is found again.

        Raises:
            ControlRefused: no such GPU, nothing to clear, or nobody judges health at the moment.
        """


class ProcessPlace(Value, frozen=True):
    """Where a process lives; an empty UID is a process of the host."""

    pod_uid: str = ""
    container_id: str = ""


class ProcessPlaces(Protocol):
    """Which pod a process belongs to."""

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        """Those that can be told; a process that ended, or is out of sight, is left out."""
        ...


class AgentControl(Protocol):
    """What a person may tell the running agent to do, over the admin socket."""

    async def reload(self) -> str:
        """Read the configuration anew; says what changed.

        Raises:
            ControlRefused: the new configuration is invalid; the one before stays in force.
        """
        ...

    async def inject_fault(self, fault: str, arguments: Sequence[str]) -> str:
        """Have the simulation misbehave; says what was done.

        Raises:
            ControlRefused: this agent does not simulate, or the fault makes no sense.
        """
        ...

    async def crash_component(self, name: str, reason: str) -> str:
        """End one component as if it had failed, to see the agent recover.

        Raises:
            ControlRefused: no component of that name.
        """
        ...

    async def release(self, reason: str, seconds: float | None) -> str:
        """Give up every GPU handle, for so long at most.

        Raises:
            ControlRefused: the handles cannot be given up.
        """
        ...

    async def resume(self) -> str:
        """Take the driver back."""
        ...

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        """Take a GPU back into service on a person's word; says what was forgotten.

        Raises:
            ControlRefused: no such GPU, nothing to clear, or nobody judges health at the moment.
        """
        ...


class ConfigurationControl(Protocol):
    """The named configurations of this node, one of which the cluster chooses."""

    async def follow_label(self, label: str) -> str:
        """Put the one in force that the node's label asks for, or the default for none; says what changed.

        Raises:
            ControlRefused: there is none of that name, or it is invalid; the one before stays in force.
        """
        ...


class KubeletCheckpoint(Value, frozen=True):
    """What the kubelet has written down for its own restart: advisory, and perhaps of pods that are gone."""

    containers: tuple[ContainerDevices, ...] = ()
    """Pods by uid alone."""
    registered: dict[str, tuple[DeviceId, ...]] = field(default_factory=dict)
    """The healthy devices of each resource."""
