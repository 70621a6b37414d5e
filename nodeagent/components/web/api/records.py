"""What the API answers, version 1. Fields are only ever added; a removal or a change of meaning is a new version."""

from typing import Any, Literal

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.devices import HostDevice
from nodeagent.model.driver import DriverState
from nodeagent.model.gpu import Gpu, GpuPair, KnownGpu, MissingGpu, NvSwitch
from nodeagent.model.health import DeviceHealth
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import GpuChange
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import GpuDoor
from nodeagent.model.plugin import PluginState
from nodeagent.model.runtime import CdiState, RuntimeState
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.usage import PartUse
from nodeagent.model.values import Value

SIMULATED_HEADER = "Nodeagent-Simulated"
"""Names the profile in every answer about made-up hardware, so that nobody takes it for a node's."""

NodeVerdict = Literal["ok", "attention", "broken", "starting"]


class GateRecord(Value, frozen=True):
    """One gate: a milestone of the start."""

    name: str
    open: bool
    """Whether the start has passed it; it stays so when what it stands for fails later."""
    since_seconds: float
    vital: bool = True


class ComponentRecord(Value, frozen=True):
    """One component and how it fares."""

    name: str
    phase: str
    since_seconds: float
    vital: bool
    restarts: int = 0
    last_error: str = ""
    waiting_for: tuple[str, ...] = ()


class ConditionRecord(Value, frozen=True):
    """Something that is wrong, as a person reads it."""

    code: str
    severity: str
    title: str
    remedy: str
    since_seconds: float
    key: str = ""
    detail: str = ""


class PartHolder(Value, frozen=True):
    """A container with a part of a GPU, and what it uses of that."""

    number: int
    """Of its binding."""
    pod: PodIdentity
    container: str
    since_seconds: float
    use: PartUse


class GpuRecord(Value, frozen=True):
    """One GPU with everything known of it at this moment."""

    gpu: Gpu
    sample: GpuSample | None = None
    sample_age_seconds: float | None = None
    sample_is_old: bool = False
    """Whether the next two readings were due and did not come: it says how it was, not how it is."""
    health: tuple[DeviceHealth, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    door: GpuDoor | None = None
    """By which it is given out; `None` while that is not known."""
    free: tuple[str, ...] | None = None
    """UUIDs of what somebody could get of it now: itself, or MIG devices; `None` where this agent offers nothing."""
    parts: tuple[PartHolder, ...] = ()
    """Who has parts of it, where it is given in parts."""
    change: GpuChange | None = None
    """What it is being cut into, or waits to be."""


class GpusRecord(Value, frozen=True):
    """All GPUs, how they are linked, and those that are missing."""

    generation: int
    gpus: tuple[GpuRecord, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    switches: tuple[NvSwitch, ...] = ()
    missing: tuple[MissingGpu, ...] = ()
    vanished: tuple[KnownGpu, ...] = ()


class DeviceRecord(Value, frozen=True):
    """One device of another kind than NVIDIA's GPUs, and who has it."""

    device: HostDevice
    holders: tuple[str, ...] = ()
    """`namespace/pod`, each once."""
    shares_held: int = 0


class DeviceClassRecord(Value, frozen=True):
    """One class of such devices."""

    resource: str
    replicas: int
    devices: tuple[DeviceRecord, ...] = ()
    problems: tuple[str, ...] = ()
    """What keeps nodes from being given, a sentence each."""


class EventRecord(Value, frozen=True):
    """One envelope of the bus; `cause` is the `seq` of the event that led to it."""

    seq: int
    time_seconds: float
    type: str
    source: str
    value: Any
    key: str = ""
    cause: int | None = None
    lag: int = 0
    """How many events were dropped before this one because the reader was slow."""
    text: str = ""
    """The event in a sentence; empty for what says nothing to a person."""
    before_restart: bool = False
    """Whether an earlier life of the agent told it; its `seq` is negative then."""


class StateRecord(Value, frozen=True):
    """The node in one answer."""

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
    """`None` where nobody looks after daemons."""
    devices: tuple[DeviceClassRecord, ...] = ()
    """Of other kinds than NVIDIA's GPUs, by class."""
    slices: PublishedSlices | None = None
    """`None` where schedulers are told of no devices that claims can have."""
    notices: tuple[str, ...] = ()
    """What the configuration asks for and this version does not have yet."""
