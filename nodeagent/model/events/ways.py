"""Changes of how GPUs are given out: allocation modes, MIG layouts, daemons of MPS."""

from typing import ClassVar

from nodeagent.model.cordons import CordonSource
from nodeagent.model.ids import GpuUuid
from nodeagent.model.offering import AllocationMode
from nodeagent.model.values import Value


class MigChangeEnded(Value, frozen=True):
    """A change of a GPU's partitions ended, done or not; the journal held the outcome first."""

    gpu: GpuUuid
    layout: str
    outcome: str
    """`done`, `undone` where the GPU is as before, `half` for a partial change, `reboot` where the GPU's mode waits."""
    detail: str = ""
    device: str = ""
    """The single device created or removed, where the change was no layout."""


class GpuSeenStale(Value, frozen=True):
    """A GPU's partitions differ from the inventory: another program has changed them since, and a rescan is due."""

    gpu: GpuUuid


class MpsDaemonStarted(Value, frozen=True):
    """A daemon of the multi-process service is ready, or was found running after a restart of the agent."""

    daemon: str
    gpus: tuple[GpuUuid, ...]
    pid: int


class MpsDaemonEnded(Value, frozen=True):
    """A daemon of the multi-process service, or a server of it, ended unasked, and with it the work of its clients."""

    daemon: str
    gpus: tuple[GpuUuid, ...]
    reason: str
    pods: tuple[str, ...] = ()
    """Pods at work at the last poll, else pods with the daemon's GPUs."""


class AllocationModeChosen(Value, frozen=True):
    """A person set the allocation mode of a GPU; the journal held the choice first."""

    shown_as: ClassVar[str] = "DoorChosen"

    gpu: GpuUuid
    door: str | None
    """`None` where the configuration decides again."""
    who: str


class AllocationModeChanged(Value, frozen=True):
    """The allocation mode of a GPU is another than before."""

    shown_as: ClassVar[str] = "DoorChanged"

    gpu: GpuUuid
    before: AllocationMode
    after: AllocationMode
    reason: str = ""


class GpuCordoned(Value, frozen=True):
    """A GPU is kept from new pods, or for another reason or time than before; the journal held the cordon first."""

    gpu: GpuUuid
    source: CordonSource
    detail: str
    """By whom, why, and until when."""


class GpuUncordoned(Value, frozen=True):
    """A source's cordon of a GPU was lifted; another source's may stand."""

    gpu: GpuUuid
    source: CordonSource
    reason: str
