"""What the doctor has seen; no conclusion in it."""

from msgspec import field

from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime
from nodeagent.components.web.api.records import StateRecord
from nodeagent.edge.host.shim.look import ShimSight
from nodeagent.model.driver import DriverEvidence
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ports import KubeletCheckpoint
from nodeagent.model.values import Value


class DirectoryFacts(Value, frozen=True):
    """A directory that the agent needs, or the one above it where it is still to be made."""

    path: str
    writable: bool
    free_bytes: int
    total_bytes: int


class SocketFacts(Value, frozen=True):
    """A socket that somebody should serve."""

    path: str
    problem: str = ""
    """Why nobody answers there; empty when somebody does."""


class PluginSocketFacts(Value, frozen=True):
    """A socket beside the kubelet's that offers NVIDIA devices."""

    path: str
    pid: int
    """Who serves it; 0 where that is a process that this one cannot see."""


class ProcessFacts(Value, frozen=True):
    """A process that may do what nodeagent does."""

    pid: int
    program: str


class ApiFacts(Value, frozen=True):
    """The API server, as this user reaches it."""

    where: str = ""
    """Which credentials; empty when there are none."""
    problem: str = ""
    denied: tuple[str, ...] = ()
    """What it may not do, verb and resource."""
    allocatable: dict[str, int] = field(default_factory=dict)
    """By extended resource, what the node object says pods may be given."""


class Facts(Value, frozen=True):
    """One look at the node."""

    version: str
    python: str
    kernel: str
    user_id: int
    configuration_problems: tuple[str, ...] = ()
    configuration_notices: tuple[str, ...] = ()
    simulated: bool = False
    evidence: DriverEvidence | None = None
    evidence_problem: str = ""
    readout: GpuReadout | None = None
    readout_problem: str = ""
    agent: StateRecord | None = None
    agent_problem: str = ""
    asked_simulation: str = ""
    """The profile of made-up hardware that the agent is about."""
    kubelet: SocketFacts | None = None
    pod_resources: SocketFacts | None = None
    checkpoint: KubeletCheckpoint | None = None
    checkpoint_problem: str = ""
    specs: tuple[SpecReading, ...] = ()
    runtime: ChosenRuntime | NoRuntime | None = None
    runtime_problem: str = ""
    shim: ShimSight | None = None
    """`None` where nobody wants the runtime shim."""
    toolkit_containers: int = 0
    """Containers that NVIDIA's own runtime has made, where the runtime shim is wanted."""
    mps_problem: str | None = None
    """Why no MPS daemon could be started; empty where one could, `None` where none is asked for."""
    mps_memory: str = ""
    """The directory of the shared memory of MPS daemons, where it is there and has no size of its own."""
    api: ApiFacts | None = None
    """`None` when the settings keep the agent away from the API server."""
    directories: tuple[DirectoryFacts, ...] = ()
    clock_synchronised: bool | None = None
    clock_behind_seconds: float = 0.0
    """How long before this program's own files the clock stands; 0 when it does not."""
    strangers: tuple[ProcessFacts, ...] = ()
    plugin_sockets: tuple[PluginSocketFacts, ...] = ()
    foreign_files: tuple[str, ...] = ()
    """Traces of software in containers, whose processes may not be seen."""
