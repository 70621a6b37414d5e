"""Parts of GPUs as they reach containers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid, ResourceName
from nodeagent.model.values import Value

PLACE: Final = "/run/nodeagent/vgpu"
"""Where a container finds its limits and the library that holds it to them; the library has the same name built in."""


class LibraryFiles(Value, frozen=True):
    """The library on the host, and the file that makes a container's dynamic linker load it."""

    library: str
    preload: str


class PartLimit(Value, frozen=True):
    """What of one GPU a container may use; `None` where nothing limits it."""

    gpu: GpuUuid
    memory_bytes: int | None = None
    cores: int | None = None
    """Hundredths that it is promised."""
    cores_max: int | None = None
    """Hundredths that it may use while nobody else does; what it is promised where that is all."""
    context_bytes: int = 0
    """What each CUDA context takes by itself, which counts as the container's."""


class PartMeasure(Value, frozen=True):
    """How busy a GPU was, in hundredths of the time: what the library in a container corrects its estimates by."""

    number: int
    """Another one for each measurement."""
    own: int
    """By the container."""
    total: int
    """By all."""


class PartFolder(Value, frozen=True):
    """Where the limits of a container stand on the host."""

    limits: str
    """The file that the container reads."""
    usage: str = ""
    """The file that it writes."""
    shared: str = ""
    """In its place the file of a claim, by which its containers know of one another."""


class UsageCheck(Value, frozen=True):
    """What was found of the files that containers write, by the names of their folders."""

    grown: Mapping[str, int] = field(default_factory=dict)
    """How large a container had made its file, until that was cut."""
    unbounded: tuple[str, ...] = ()
    """Whose files lie on the node's disk, where nothing but that cut bounds them."""


class ContainerRequest(Value, frozen=True):
    """One container of a pod, as its author wrote it."""

    name: str
    is_init: bool = False
    limits: Mapping[str, str] = {}


class PodRequest(Value, frozen=True):
    """What the API server says of a pod that has parts of GPUs."""

    pod: PodIdentity
    annotations: Mapping[str, str] = {}
    containers: tuple[ContainerRequest, ...] = ()
    """Init containers first, each kind in its order."""
    is_finished: bool = False
    """Whether nothing of it will run any more."""


class ContainerState(StrEnum):
    """What the container runtime says of a container."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class PodContainer(Value, frozen=True):
    """One container of a pod, as the container runtime has it."""

    id: str
    pod_uid: str
    name: str
    state: ContainerState
    namespace: str = ""
    pod: str = ""
    """Of the pod, as the kubelet has told the runtime."""


class PartWish(Value, frozen=True):
    """Other limits for a running container, as a person asks for them; `None` leaves one as it is."""

    pod: str
    """Its name, with the namespace and a slash before it where the name alone is not enough."""
    container: str = ""
    """Where the pod has several with parts."""
    cores: int | None = None
    memory_bytes: int | None = None
    who: str = ""


class ChoiceCorrection(Value, frozen=True):
    """What a pod is to say instead of a scheduler's choice where a container of it has other GPUs."""

    pod: PodIdentity
    container: str
    annotations: Mapping[str, str]
    reason: str


class PartReasons(Value, frozen=True):
    """State: how GPUs were chosen, in lines of text, since the agent began."""

    bound: Mapping[int, tuple[str, ...]] = {}
    """By the number of the binding."""
    waiting: Mapping[str, tuple[str, ...]] = {}
    """For each container that waits for room, why."""
    overruled: Mapping[str, int] = {}
    """How many choices of schedulers were not obeyed, by the kind of reason."""


class PartOffers(Value, frozen=True):
    """State: the resources that count parts of GPUs, and the GPUs that they stand for."""

    resources: tuple[ResourceName, ...] = ()
    unfit: Mapping[GpuUuid, str] = {}
    """For each GPU that is given in parts, why nothing of it can be given now; empty where something can."""
    published: str = ""
    """What the node object is to say of them, for schedulers; empty for nothing."""
    bound: str = ""
    """What it is to say of the parts that containers have; empty for nothing."""
