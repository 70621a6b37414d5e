"""The doctor's observations, without conclusions."""

from msgspec import field

from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime
from nodeagent.components.web.api.records import StateRecord
from nodeagent.edge.host.shim.inspection import ShimSight
from nodeagent.model.driver import DriverEvidence
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ports import KubeletCheckpoint
from nodeagent.model.values import Value


class DirectoryFacts(Value, frozen=True):
    """A directory of the agent, or the nearest existing parent."""

    path: str
    writable: bool
    free_bytes: int
    total_bytes: int


class SocketFacts(Value, frozen=True):
    """A socket that a server should answer on."""

    path: str
    problem: str = ""
    """Why the socket does not answer; empty when it answers."""


class PluginSocketFacts(Value, frozen=True):
    """A socket beside the kubelet's socket, with NVIDIA devices on offer."""

    path: str
    pid: int
    """The serving process; 0 for a process invisible from here."""


class ProcessFacts(Value, frozen=True):
    """A process that may do the same work as nodeagent."""

    pid: int
    program: str


class ApiFacts(Value, frozen=True):
    """The API server, as this user reaches it."""

    where: str = ""
    """The source of credentials; empty without credentials."""
    problem: str = ""
    denied: tuple[str, ...] = ()
    """Denied permissions, verb and resource."""
    allocatable: dict[str, int] = field(default_factory=dict)
    """The node object's allocatable count of each extended resource."""
    server_version: str = ""
    kubelet_version: str = ""
    """By the node object; empty where the node object was not read."""


class Facts(Value, frozen=True):
    """All observations of one run."""

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
    """The hardware profile of the answering simulation."""
    kubelet: SocketFacts | None = None
    pod_resources: SocketFacts | None = None
    checkpoint: KubeletCheckpoint | None = None
    checkpoint_problem: str = ""
    specs: tuple[SpecReading, ...] = ()
    runtime: ChosenRuntime | NoRuntime | None = None
    runtime_problem: str = ""
    shim: ShimSight | None = None
    """`None` where the runtime shim is not configured."""
    toolkit_containers: int = 0
    """Containers made by NVIDIA's own runtime, where the runtime shim is configured."""
    mps_problem: str | None = None
    """Why no MPS daemon could be started; empty where a daemon could start, `None` where MPS is not configured."""
    mps_memory: str = ""
    """The shared memory directory of MPS daemons, where present and without a size of its own."""
    api: ApiFacts | None = None
    """`None` where Kubernetes is off in the settings."""
    wanted_abilities: tuple[str, ...] = ()
    """The abilities of Kubernetes that the settings need."""
    cgroup_v1: bool = False
    directories: tuple[DirectoryFacts, ...] = ()
    clock_synchronised: bool | None = None
    clock_behind_seconds: float = 0.0
    """By how much the clock is earlier than this program's own files; 0 for a later clock."""
    strangers: tuple[ProcessFacts, ...] = ()
    plugin_sockets: tuple[PluginSocketFacts, ...] = ()
    foreign_files: tuple[str, ...] = ()
    """Traces of software in containers, whose processes may be invisible."""
