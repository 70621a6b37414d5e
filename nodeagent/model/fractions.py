"""Fractions of GPUs as they reach containers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid, ResourceName
from nodeagent.model.values import Value

PLACE: Final = "/run/nodeagent/vgpu"
"""The directory in containers of the limits file and the vGPU library; built into the library too."""


class LibraryFiles(Value, frozen=True):
    """The vGPU library on the host, and the file that makes a container's dynamic linker load the library."""

    library: str
    preload: str


class FractionLimit(Value, frozen=True):
    """A container's limits on a GPU; `None` for no limit."""

    gpu: GpuUuid
    memory_bytes: int | None = None
    cores: int | None = None
    """Promised hundredths."""
    cores_max: int | None = None
    """Usable hundredths while no other container uses the GPU; the promised hundredths where there are no more."""
    context_bytes: int = 0
    """Memory of each CUDA context by itself, counted as the container's."""


class MeasuredUtilization(Value, frozen=True):
    """A GPU's utilization in hundredths of the time: the container's library corrects its estimates by it."""

    number: int
    """Another number for each measurement."""
    own: int
    """By the container."""
    total: int
    """By all."""


class LimitsFolder(Value, frozen=True):
    """Where the limits of a container stand on the host."""

    limits: str
    """The limits file, read by the container."""
    usage: str = ""
    """The usage file, written by the container."""
    shared: str = ""
    """In place of the usage file, a claim's file by which its containers know of one another."""


class UsageCheck(Value, frozen=True):
    """Findings about the usage files of containers, by the names of their folders."""

    grown: Mapping[str, int] = field(default_factory=dict)
    """The size of a usage file enlarged by its container, before the cut."""
    unbounded: tuple[str, ...] = ()
    """Folders with usage files on the node's disk, bounded by nothing but the cut."""


class ContainerRequest(Value, frozen=True):
    """A container of a pod, as the pod's author wrote it."""

    name: str
    is_init: bool = False
    limits: Mapping[str, str] = {}


class PodRequest(Value, frozen=True):
    """A pod with fractions of GPUs, as the API server has it."""

    pod: PodIdentity
    annotations: Mapping[str, str] = {}
    containers: tuple[ContainerRequest, ...] = ()
    """Init containers first, each kind in its order."""
    is_finished: bool = False
    """Whether no container of the pod will run any more."""


class ContainerState(StrEnum):
    """The container runtime's state of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class PodContainer(Value, frozen=True):
    """A container of a pod, as the container runtime has it."""

    id: str
    pod_uid: str
    name: str
    state: ContainerState
    namespace: str = ""
    pod: str = ""
    """Of the pod, as the kubelet has passed it to the runtime."""


class ChoiceCorrection(Value, frozen=True):
    """A pod's annotations in place of a scheduler's choice, where a container of the pod has other GPUs."""

    pod: PodIdentity
    container: str
    annotations: Mapping[str, str]
    reason: str


class FractionDecisions(Value, frozen=True):
    """State: how GPUs were chosen, in lines of text, since the agent began."""

    shown_as: ClassVar[str] = "PartReasons"

    bound: Mapping[int, tuple[str, ...]] = {}
    """By the number of the binding."""
    waiting: Mapping[str, tuple[str, ...]] = {}
    """For each container waiting for room, why."""
    overruled: Mapping[str, int] = {}
    """How many choices of schedulers were not obeyed, by the kind of reason."""


class FractionOffers(Value, frozen=True):
    """State: the resources that count fractions, and their GPUs."""

    shown_as: ClassVar[str] = "PartOffers"

    resources: tuple[ResourceName, ...] = ()
    unfit: Mapping[GpuUuid, str] = {}
    """For each GPU given in fractions, why no fraction can be given now; empty where some can."""
    published: str = ""
    """The offer published on the node object for schedulers; empty without an offer."""
    bound: str = ""
    """The containers' fractions published on the node object; empty without fractions."""
    published_classes: str = ""
    """The offers of divisible classes, published beside that of GPUs."""
    bound_classes: str = ""
    """The containers' fractions of divisible classes, published beside those of GPUs."""
