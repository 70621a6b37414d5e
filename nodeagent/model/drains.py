"""Drains: the holders of a GPU under repair, and the steps after which the GPU has no holder."""

from enum import StrEnum

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value


class DeviceUser(Value, frozen=True):
    """A process with device files of GPUs open."""

    pid: int
    command: str
    minors: frozenset[int]
    """The minor numbers of the device files."""
    pod_uid: str = ""
    """The pod of the process; empty for a process of the host."""


class BoundPod(Value, frozen=True):
    """A pod of the node as the API server has it: what an eviction must know before it asks."""

    pod: PodIdentity
    version: str
    controller: str = ""
    """The kind of the controlling owner; empty without a controller."""
    is_static: bool = False
    """Whether the pod mirrors a file of the node."""
    is_going: bool = False
    """Whether the pod is being deleted."""


class EvictionAnswer(Value, frozen=True):
    """The API server's answer about one pod."""

    eviction: Eviction
    detail: str = ""
    """The API server's own words, where the answer is a no."""
    retry_after_seconds: float | None = None


class GpuHolder(Value, frozen=True):
    """A pod with GPUs of a repair, or a process that belongs to no pod of the journal."""

    name: str
    """`namespace/name`, or `process 4711 (Xorg)`."""
    gpus: frozenset[GpuUuid]
    pod: PodIdentity | None = None
    obstacle: str = ""
    """Why nobody can be asked to leave; empty for a pod."""


class DrainStep(StrEnum):
    """The present step of a drain for one holder."""

    WAIT = "wait"
    LOOK = "look"
    """The API server is asked for the pod."""
    EVICT = "evict"
    DELETE = "delete"
    """A disruption budget is not asked: the GPU is dead for the pod."""
    LEAVING = "leaving"
    """The pod is being deleted, with its own grace period."""
    LEAVE = "leave"
    """The holder is an obstacle, and no work of the agent removes it."""
    LATE = "late"
    """The deadline is over: nobody is asked any more."""


class HolderStep(Value, frozen=True):
    """A holder, the step that is taken, and the reason."""

    holder: GpuHolder
    step: DrainStep
    why: str
