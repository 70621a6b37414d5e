"""What the API answers, version 1. Fields are only ever added; a removal or a change of meaning is a new version."""

from typing import Any, Literal

from nodeagent.config.sections.mig import LayoutEntry, MigSettings
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.devices import DeviceReadings, HostDevice
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Gpu, GpuPair, MissingGpu, NvSwitch, StoredGpu
from nodeagent.model.health import DeviceHealth
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import GpuChange
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import GpuAllocationMode
from nodeagent.model.plugin import PluginState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.usage import FractionUse
from nodeagent.model.values import Value
from nodeagent.rules.placement.space import CORES

SIMULATED_HEADER = "Nodeagent-Simulated"
"""Names the profile in every answer about made-up hardware, so that no reader takes it for a node's."""

NodeVerdict = Literal["ok", "attention", "broken", "starting"]


class GateRecord(Value, frozen=True):
    """A gate: a milestone of the start."""

    name: str
    open: bool
    """Whether the start has passed the gate; still true when the gate's subject fails later."""
    since_seconds: float
    vital: bool = True


class ComponentRecord(Value, frozen=True):
    """A component and its phase."""

    name: str
    phase: str
    since_seconds: float
    vital: bool
    restarts: int = 0
    last_error: str = ""
    waiting_for: tuple[str, ...] = ()


class ConditionRecord(Value, frozen=True):
    """A problem in words for people."""

    code: str
    severity: str
    title: str
    remedy: str
    since_seconds: float
    key: str = ""
    detail: str = ""


class FractionHolder(Value, frozen=True):
    """A container with a fraction of a GPU, and its use of the fraction."""

    number: int
    """The number of the binding."""
    pod: PodIdentity
    container: str
    since_seconds: float
    use: FractionUse


class GpuRecord(Value, frozen=True):
    """A GPU with all its states at this moment."""

    gpu: Gpu
    sample: GpuSample | None = None
    sample_age_seconds: float | None = None
    sample_is_old: bool = False
    """Whether the next two readings were due and did not come: the sample then shows the past, not the present."""
    health: tuple[DeviceHealth, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    door: GpuAllocationMode | None = None
    """The allocation mode of the GPU; `None` while unknown."""
    free: tuple[str, ...] | None = None
    """UUIDs that a pod could get now: the GPU's, or of MIG devices; `None` where this agent offers nothing."""
    parts: tuple[FractionHolder, ...] = ()
    """The holders of fractions, where the GPU is given in fractions."""
    change: GpuChange | None = None
    """The wanted partitions of a GPU in change, or waiting for a change."""


class GpusRecord(Value, frozen=True):
    """All GPUs, their links, and missing GPUs."""

    generation: int
    gpus: tuple[GpuRecord, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    switches: tuple[NvSwitch, ...] = ()
    missing: tuple[MissingGpu, ...] = ()
    vanished: tuple[StoredGpu, ...] = ()


class DeviceRecord(Value, frozen=True):
    """A device of another kind than the driver's GPUs, and its holders."""

    device: HostDevice
    holders: tuple[str, ...] = ()
    """`namespace/pod`, each once."""
    shares_held: int = 0
    cores_held: int = 0
    """Hundredths of a divisible device that containers have."""
    readings: DeviceReadings | None = None
    """`None` for a device without sensors."""


class DeviceClassRecord(Value, frozen=True):
    """A class of such devices."""

    resource: str
    replicas: int
    devices: tuple[DeviceRecord, ...] = ()
    problems: tuple[str, ...] = ()
    """Why devices cannot be given out, a sentence each."""
    divisible: bool = False
    """Whether the devices are given in parts, which are counted and not enforced."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The problems and notes of the class for people, a sentence each."""
        return (*self.problems, *(("parts are counted, not enforced",) if self.divisible else ()))

    def describe_held(self, record: DeviceRecord) -> str:
        """How much of a device containers have."""
        if self.divisible:
            return f"{record.cores_held} of {CORES} cores"
        return f"{record.shares_held} of {self.replicas}"


class EventRecord(Value, frozen=True):
    """An envelope of the bus; `cause` is the `seq` of the event behind it."""

    seq: int
    time_seconds: float
    type: str
    source: str
    value: Any
    key: str = ""
    cause: int | None = None
    lag: int = 0
    """How many events were dropped before this event because the reader was slow."""
    text: str = ""
    """The event in a sentence; empty for events without meaning for people."""
    before_restart: bool = False
    """Whether the event is from an earlier process of the agent; its `seq` is negative then."""


class StateRecord(Value, frozen=True):
    """The whole node."""

    api: str
    version: str
    node: str
    gpu_source: str
    pid: int
    started_seconds: float
    time_seconds: float
    verdict: NodeVerdict
    sentence: str
    ready: bool
    gates: tuple[GateRecord, ...]
    components: tuple[ComponentRecord, ...]
    conditions: tuple[ConditionRecord, ...]
    driver: DriverState | None = None
    gpus: GpusRecord | None = None
    plugin: PluginState | None = None
    runtime: RuntimeState | None = None
    cdi: CdiState | None = None
    allocations: tuple[Allocation, ...] = ()
    labels: LabelState | None = None
    mps: MpsState | None = None
    """`None` where MPS daemons are off."""
    devices: tuple[DeviceClassRecord, ...] = ()
    """Devices of the configured classes."""
    slices: PublishedSlices | None = None
    """`None` where no devices for claims are published."""
    notices: tuple[str, ...] = ()
    """Settings that this version does not support yet."""


class LayoutsRecord(Value, frozen=True):
    """The settings of the running agent that name layouts."""

    layouts: tuple[LayoutEntry, ...] = ()
    layouts_file: str = ""
    """The path of the file as the agent sees it, in whose own root it may lie; empty for none."""


def record_layouts(settings: MigSettings) -> LayoutsRecord:
    """The layouts in the settings now."""
    file = settings.layouts_file
    return LayoutsRecord(layouts=settings.layouts, layouts_file="" if file is None else str(file))
