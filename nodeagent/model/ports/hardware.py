"""Ports of the driver, of GPUs and of their host."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from nodeagent.model.driver import DriverEvidence, LoadedModule, NodeRepair
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.gpu import ComputeMode, Gpu, GpuReadout
from nodeagent.model.ids import PciAddress
from nodeagent.model.mig import GpuPartitions, Write
from nodeagent.model.proof import ProofPlan, ProverReadings
from nodeagent.model.repairs import ToolAnswer
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.values import Value

GpuEvent = XidReported | GpuEventReported


class DriverProbe(Protocol):
    """Polls the driver without judging it."""

    async def read_evidence(self) -> DriverEvidence:
        """Poll the driver, bounded in time; unreadable facts are left empty, a hung call is evidence too."""
        ...

    async def wait_change(self) -> None:
        """Return when the driver may have changed: a module or device node came or went, a fault was injected."""
        ...


class GpuProver(Protocol):
    """Proves one GPU by using it; the GPU is free again on return, and at once where the caller is cancelled."""

    async def prove(self, gpu: str, plan: ProofPlan) -> ProverReadings:
        """The prover's readings; a prover that hangs or cannot start is a reading, and no error."""
        ...


class DeviceNodes(Protocol):
    """The driver's device nodes on this host."""

    async def repair(self) -> NodeRepair:
        """Correct every device node and its link, as far as permitted; usually there is no work."""
        ...


class ModuleLoader(Protocol):
    """Loads the driver's kernel modules on this host."""

    async def load(self, modules: Sequence[str]) -> str:
        """Load modules, bounded in time; empty when done, else what stood in the way."""
        ...


class DriverModules(ModuleLoader, Protocol):
    """The driver's kernel modules on this host, to be loaded and taken out."""

    async def read_loaded(self) -> tuple[LoadedModule, ...]:
        """The driver's loaded modules, and those built on the driver."""
        ...

    async def unload(self, modules: Sequence[str]) -> ToolAnswer:
        """Unload unused modules in order, bounded in time."""
        ...


class GpuSource(Protocol):
    """The only access to GPUs; every call is bounded in time and fails with a `DriverError` only."""

    async def read_inventory(self) -> GpuReadout:
        """Enumerate all GPUs; a GPU's unreadable data are reasons on the GPU."""
        ...

    async def read_sample(self) -> NodeSample:
        """Read a sample of all GPUs: the readings of each second."""
        ...

    def events(self) -> AsyncIterator[GpuEvent]:
        """The driver's own reports, until the driver is lost or released, or events cannot be watched any longer."""
        ...

    async def release(self, reason: str) -> None:
        """Release every handle, so that the driver can be unloaded."""
        ...

    async def resume(self) -> None:
        """Take the driver back, in whatever version."""
        ...


class PartitionSession(Protocol):
    """A process started for a single change of the partitions, ended after the change.

    Raises:
        PartitionRefused: The driver refused a change, and nothing changed.
        GpuError: The GPU cannot be asked.
        DriverError: No answer; after a change, the state must be read to know of it.
    """

    async def read(self, gpu: Gpu) -> GpuPartitions:
        """All partitions of a GPU, instances without a device included."""
        ...

    async def write(self, gpu: Gpu, write: Write) -> int:
        """Make a call; returns the id of the instance created, or 0."""
        ...

    async def read_compute_mode(self, gpu: Gpu) -> ComputeMode:
        """The GPU's compute mode."""
        ...

    async def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Set the GPU's compute mode for new processes; running processes go on."""
        ...

    async def set_time_slice(self, gpu: Gpu, number: int) -> None:
        """Set the length of the GPU's time slices: 0 for the driver's default, 1 to 3 for ever longer.

        The length holds until it is set otherwise, or the GPU is reset or the machine booted.
        """
        ...


class GpuPartitioning(Protocol):
    """The only access for changes of GPUs' partitions."""

    def begin(self) -> AbstractAsyncContextManager[PartitionSession]:
        """A session for a single change, at the price of a process."""
        ...


class DriverTool(Protocol):
    """The driver's own program; each call is bounded in time and raises nothing, as an act may end in any way."""

    async def reset(self, addresses: Sequence[PciAddress], *, is_bus: bool, timeout_seconds: float) -> ToolAnswer:
        """Reset GPUs together, their functions or their bus; no process may have one of the GPUs."""
        ...

    async def set_persistence(self, address: PciAddress, *, is_on: bool) -> ToolAnswer:
        """Set the persistence mode of a GPU."""
        ...

    async def set_power_limit(self, address: PciAddress, milliwatts: int) -> ToolAnswer:
        """Set the power limit of a GPU."""
        ...

    async def set_compute_mode(self, address: PciAddress, mode: ComputeMode) -> ToolAnswer:
        """Set the compute mode of a GPU."""
        ...

    async def set_application_clocks(self, address: PciAddress, memory_mhz: int, graphics_mhz: int) -> ToolAnswer:
        """Set the clocks that applications on a GPU get."""
        ...


class FaultInjector(Protocol):
    """Injects faults into the simulation."""

    @property
    def known_faults(self) -> tuple[str, ...]:
        """Each fault with its arguments, as `simulate fault --help` shows them."""
        ...

    async def inject(self, fault: str, arguments: Sequence[str]) -> str:
        """Inject a fault, and report the effect in a sentence.

        Raises:
            FaultUnknown: No such fault.
            GpuUnknown: No such GPU.
            ValueError: An invalid argument; the message names the argument and the reason.
        """
        ...


class ProcessPlace(Value, frozen=True):
    """Where a process lives; an empty UID is a process of the host."""

    pod_uid: str = ""
    container_id: str = ""
    name: str = ""
    """The name of a process of the host; not read for others."""


class ProcessEnding(Protocol):
    """How a process of a pod is ended for good."""

    async def end(self, pid: int, pod_uid: str) -> bool:
        """Kill the process; False where it is already gone, or not the pod's any more."""
        ...


class ProcessPlaces(Protocol):
    """The pods of processes."""

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        """Processes with a known pod or host place; a process ended, or out of sight, is left out."""
        ...


class GpuAccess(NamedTuple):
    """Changes of GPUs, and the pods of GPU processes."""

    partitioning: GpuPartitioning
    places: ProcessPlaces | None = None
    """`None` where processes are simulated: each process stands alone."""
