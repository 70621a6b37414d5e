"""NVIDIA's multi-process service: the daemons' limits, phases and processes, and the access of clients."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.values import Value

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not a temporary file, but the directory of the driver's segments

PIPE_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
THREADS_VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_VARIABLE: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

MARKER: Final = ".nodeagent"
"""File beside the directories of daemons, to mark them as the agent's: an agent set otherwise removes the rest."""


class MpsPlace(Value, frozen=True):
    """The directories of a daemon, on the host."""

    root: Path
    name: str
    has_own_memory: bool
    """Whether the daemon's shared memory is another than the host's."""

    @property
    def directory(self) -> Path:
        """The daemon's own directory."""
        return self.root / self.name

    @property
    def pipes(self) -> Path:
        """The directory of the daemon's sockets."""
        return self.directory / "pipe"

    @property
    def logs(self) -> Path:
        """The directory of the daemon's logs."""
        return self.directory / "log"

    @property
    def shared_memory(self) -> Path:
        """The daemon's and its clients' /dev/shm."""
        return self.root / "shm" if self.has_own_memory else Path(SHARED_MEMORY)


class MpsPhase(StrEnum):
    """A daemon's condition, a single word for people and scripts."""

    WAITING = "waiting"
    """A holder that does not go through the daemon still has a GPU of it."""
    STARTING = "starting"
    READY = "ready"
    BROKEN = "broken"
    """The daemon died, does not answer, or cannot be started; the start is retried."""
    STOPPING = "stopping"
    """The daemon is not wanted any more, and ends as soon as no container has a GPU through it."""


class MpsLimits(Value, frozen=True):
    """The limits of each client of a daemon."""

    thread_percentage: int | None = None
    """Hundredths of a GPU's threads; `None` leaves the limit to the daemon, unlimited by default."""
    memory_mib: Mapping[GpuUuid, int] = field(default_factory=dict)
    """Memory of each GPU; a GPU not listed has no limit."""
    multi_user: bool = False
    """Whether clients of several users work at once; else the clients of a user wait for the end of another user's."""


class MpsAccess(Value, frozen=True):
    """The environment and mounts of a daemon's client."""

    environment: Mapping[str, str]
    mounts: tuple[ContainerMount, ...]


class MpsClient(Value, frozen=True):
    """A process that works through a server."""

    pid: int
    """As the host numbers the process."""
    pod: str = ""
    """Namespace and name of the pod, the pod's UID where only the UID is known, empty for a process of the host."""


class MpsServer(Value, frozen=True):
    """A server of a daemon, started for the first client of its user, making the calls of all the user's clients."""

    pid: int
    clients: tuple[MpsClient, ...] = ()


class MpsDaemon(Value, frozen=True):
    """A control daemon with its GPUs and servers."""

    name: str
    """A GPU, a resource or a claim: the name of the daemon's directory."""
    gpus: tuple[GpuUuid, ...]
    owner: str
    """The resource whose replicas the daemon serves, or the claim."""
    limits: MpsLimits
    phase: MpsPhase
    reason: str = ""
    """Why the daemon is not ready; empty when ready."""
    pid: int | None = None
    pipe_directory: str = ""
    servers: tuple[MpsServer, ...] = ()
    starts: int = 0
    """Starts since the agent's start; a daemon found running counts as none."""
    last_fault: str = ""
    """The newest fault; empty before the first."""
    since_seconds: float = 0.0
    """Wall-clock time of the last change of phase."""

    @property
    def clients(self) -> tuple[MpsClient, ...]:
        """The processes that work through the daemon."""
        return tuple(client for server in self.servers for client in server.clients)


class MpsState(Value, frozen=True):
    """State: all daemons running, wanted, or being ended."""

    daemons: tuple[MpsDaemon, ...] = ()

    def find_gpu(self, gpu: GpuUuid) -> MpsDaemon | None:
        """The daemon of a GPU; a GPU has at most one."""
        return next((daemon for daemon in self.daemons if gpu in daemon.gpus), None)

    def list_troubled(self) -> Iterator[MpsDaemon]:
        """The broken daemons."""
        return (one for one in self.daemons if one.phase is MpsPhase.BROKEN)
