"""NVIDIA's multi-process service: what is asked of its daemons, how they stand, and what their clients need."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.values import Value

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not a temporary file of ours, but where the driver has its segments

MARKER: Final = ".nodeagent"
"""Beside the directories of daemons, where they are this agent's: one that is set otherwise takes back what is left."""


class MpsPlace(Value, frozen=True):
    """The directories of one daemon, on the host."""

    root: Path
    name: str
    has_own_memory: bool
    """Whether its shared memory is another than that of the host."""

    @property
    def directory(self) -> Path:
        """All that is its own."""
        return self.root / self.name

    @property
    def pipes(self) -> Path:
        """Where it listens."""
        return self.directory / "pipe"

    @property
    def logs(self) -> Path:
        """Where it writes what it does."""
        return self.directory / "log"

    @property
    def shared_memory(self) -> Path:
        """What it and its clients have as /dev/shm."""
        return self.root / "shm" if self.has_own_memory else Path(SHARED_MEMORY)


class MpsPhase(StrEnum):
    """How a daemon stands, one word for people and scripts."""

    WAITING = "waiting"
    """Somebody who does not go through it still has one of its GPUs."""
    STARTING = "starting"
    READY = "ready"
    BROKEN = "broken"
    """It died, does not answer, or cannot be started; it is tried again."""
    STOPPING = "stopping"
    """It is not wanted any more, and ends as soon as nobody has its GPUs through it."""


class MpsLimits(Value, frozen=True):
    """What each client of a daemon may use at most."""

    thread_percentage: int | None = None
    """Hundredths of the threads of a GPU; `None` leaves it to the daemon, which then limits nothing."""
    memory_mib: Mapping[GpuUuid, int] = field(default_factory=dict)
    """Memory of each GPU; a GPU that is not named has no limit."""


class MpsAccess(Value, frozen=True):
    """What a container needs in order to be a client of a daemon."""

    environment: Mapping[str, str]
    mounts: tuple[ContainerMount, ...]


class MpsClient(Value, frozen=True):
    """One process that works through a server."""

    pid: int
    """As the host numbers it."""
    pod: str = ""
    """Namespace and name of its pod, the pod's UID where only that is known, empty for a process of the host."""


class MpsServer(Value, frozen=True):
    """One server of a daemon; it was started for the first client of its user, and makes the calls for all of them."""

    pid: int
    clients: tuple[MpsClient, ...] = ()


class MpsDaemon(Value, frozen=True):
    """One control daemon, and what it looks after."""

    name: str
    """A GPU, a resource or a claim: what its directory is called."""
    gpus: tuple[GpuUuid, ...]
    owner: str
    """The resource whose shares it serves, or the claim."""
    limits: MpsLimits
    phase: MpsPhase
    reason: str = ""
    """Why it is not ready; empty when it is."""
    pid: int | None = None
    pipe_directory: str = ""
    servers: tuple[MpsServer, ...] = ()
    starts: int = 0
    """How often it was started since the agent runs; one that was found running is not counted."""
    last_fault: str = ""
    """What went wrong last, and when nothing did, empty."""
    since_seconds: float = 0.0
    """Since when it stands so, wall clock."""

    @property
    def clients(self) -> tuple[MpsClient, ...]:
        """The processes that work through it."""
        return tuple(client for server in self.servers for client in server.clients)


class MpsState(Value, frozen=True):
    """State: every daemon that runs, should run, or is being ended."""

    daemons: tuple[MpsDaemon, ...] = ()

    def find_gpu(self, gpu: GpuUuid) -> MpsDaemon | None:
        """The daemon that has this GPU; a GPU has one at most."""
        return next((daemon for daemon in self.daemons if gpu in daemon.gpus), None)

    def list_troubled(self) -> Iterator[MpsDaemon]:
        """Those that are not ready and should be."""
        return (one for one in self.daemons if one.phase is MpsPhase.BROKEN)
