"""What happened to the ways in which GPUs are given: doors, layouts of MIG, daemons of MPS."""

from nodeagent.model.ids import GpuUuid
from nodeagent.model.offering import Door
from nodeagent.model.values import Value


class MigChangeEnded(Value, frozen=True):
    """A GPU was cut otherwise, or was to be; what became of it was written down first."""

    gpu: GpuUuid
    layout: str
    outcome: str
    """`done`, `undone` where it is as it was before, `half` where it is neither, `reboot` where its mode waits."""
    detail: str = ""
    device: str = ""
    """The single device that was made or taken away, where it was no layout."""


class GpuSeenStale(Value, frozen=True):
    """A GPU is cut otherwise than it was seen last: somebody else has done that since, and it is to be looked at."""

    gpu: GpuUuid


class MpsDaemonStarted(Value, frozen=True):
    """A daemon of the multi-process service is ready, or was found running after a restart of the agent."""

    daemon: str
    gpus: tuple[GpuUuid, ...]
    pid: int


class MpsDaemonEnded(Value, frozen=True):
    """Such a daemon, or a server of it, ended unasked, and with it the work that went through it."""

    daemon: str
    gpus: tuple[GpuUuid, ...]
    reason: str
    pods: tuple[str, ...] = ()
    """Those who were at work when it was looked at last, else those who have its GPUs."""


class DoorChosen(Value, frozen=True):
    """A person said by which door a GPU is to be given out; it was written down first."""

    gpu: GpuUuid
    door: str | None
    """`None` where the configuration decides again."""
    who: str


class DoorChanged(Value, frozen=True):
    """A GPU is given out by another door than before."""

    gpu: GpuUuid
    before: Door
    after: Door
    reason: str = ""
