"""What is asked of the driver, of GPUs and of the host they sit in."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from nodeagent.model.driver import DriverEvidence, NodeRepair
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.gpu import ComputeMode, Gpu, GpuReadout
from nodeagent.model.mig import GpuPartitions, Write
from nodeagent.model.node_facts import NodeFacts
from nodeagent.model.offering import Door
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


class PartitionSession(Protocol):
    """A process that was started for one change of the partitions, and is gone after it."""

    async def read(self, gpu: Gpu) -> GpuPartitions:
        """All partitions of this GPU, those included that are no device.

        Raises:
            GpuError: this GPU cannot be asked.
            DriverError: no GPU can be asked.
        """
        ...

    async def write(self, gpu: Gpu, write: Write) -> int:
        """Make one call; answers with the id of what was made, or 0.

        Raises:
            PartitionRefused: the driver refused, and nothing changed.
            GpuError: this GPU cannot be asked.
            DriverError: no answer; whether anything changed must be read.
        """
        ...

    async def read_compute_mode(self, gpu: Gpu) -> ComputeMode:
        """Who may use this GPU.

        Raises:
            GpuError: this GPU cannot be asked.
            DriverError: no GPU can be asked.
        """
        ...

    async def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Say who may use this GPU from now on; those who use it go on.

        Raises:
            PartitionRefused: the driver refused, and nothing changed.
            GpuError: this GPU cannot be asked.
            DriverError: no answer; whether anything changed must be read.
        """
        ...

    async def set_time_slice(self, gpu: Gpu, number: int) -> None:
        """Say how long each who shares this GPU has its turn: 0 for the driver's own choice, 1 to 3 for ever longer.

        It is the GPU's until it is set otherwise, or the GPU is reset or the machine booted.

        Raises:
            PartitionRefused: the driver refused, and nothing changed.
            GpuError: this GPU cannot be asked.
            DriverError: no answer.
        """
        ...


class GpuPartitioning(Protocol):
    """The one door by which the partitions of GPUs are changed."""

    def begin(self) -> AbstractAsyncContextManager[PartitionSession]:
        """A session for one change, which costs a process."""
        ...


class NodeFactSource(Protocol):
    """The node apart from its GPUs."""

    async def read_facts(self) -> NodeFacts:
        """Look once; what cannot be read is empty.

        Raises:
            NodeagentError: the node's own files do not answer.
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


class GpuClearing(Protocol):
    """Whoever judges health, asked to take a GPU back on a person's word."""

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        """Forget the faults of a GPU; says what was forgotten. What is bad at the next look is found again.

        Raises:
            ControlRefused: no such GPU, nothing to clear, or nobody judges health at the moment.
        """


class GpuForgetting(Protocol):
    """Whoever keeps the inventory, told that a GPU is gone for good."""

    async def forget_gpu(self, name: str, who: str) -> str:
        """No longer miss a GPU that has vanished; says which.

        Raises:
            ControlRefused: no such GPU is missed, or nobody keeps the inventory at the moment.
        """


class DoorChoosing(Protocol):
    """Whoever looks after the doors, told by a person through which one a GPU is to go."""

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        """Have a GPU go through this door, or the configured one for `None`; says how its door stands now.

        It is remembered over restarts. A GPU that somebody has changes its door as soon as nobody has it.

        Raises:
            ControlRefused: no such GPU or door, it cannot be remembered, or nobody looks after the doors now.
        """
        ...


class LayoutApplying(Protocol):
    """Whoever cuts GPUs, told by a person into what."""

    async def apply_layout(self, name: str, who: str) -> str:
        """Have the GPUs cut as this layout says, or as the one before for an empty name; says what will change.

        It is carried out after the answer, and remembered over restarts.

        Raises:
            ControlRefused: there is no such layout, it cannot be had, or nobody cuts GPUs at the moment.
        """
        ...


class ProcessPlace(Value, frozen=True):
    """Where a process lives; an empty UID is a process of the host."""

    pod_uid: str = ""
    container_id: str = ""
    name: str = ""
    """What a process of the host is called; not asked for of others."""


class ProcessEnding(Protocol):
    """How a process of a pod is ended for good."""

    async def end(self, pid: int, pod_uid: str) -> bool:
        """Kill it; False where it is gone already, or is not that pod's any more.

        Raises:
            NodeagentError: it could not be done.
        """
        ...


class ProcessPlaces(Protocol):
    """Which pod a process belongs to."""

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        """Those that can be told; a process that ended, or is out of sight, is left out."""
        ...
