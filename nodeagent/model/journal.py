"""What stands in the journal beside whole devices: parts of GPUs, claims, changes under way, doors set by a person."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.offering import Door
from nodeagent.model.values import Value


class Reservation(Value, frozen=True):
    """Tokens of one resource, promised in an answer to the kubelet before anybody knew to which container."""

    number: int
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    """The tokens; those that an init container gives back stand in the reservation of the container after it too."""
    since_seconds: float
    cdi_name: str = ""
    """The name that was answered, of which nothing is known but that it is this one; empty where none was."""
    kubelet_run: str = ""
    """The run of the kubelet that asked; empty where that is not known (any more)."""


class GpuPart(Value, frozen=True):
    """So much of one GPU."""

    gpu: GpuUuid
    cores: int
    """Hundredths of its compute."""
    memory_bytes: int


class Enforcement(StrEnum):
    """What keeps a container within its part."""

    ADVISE = "advise"
    LIBRARY = "library"
    MPS = "mps"


class Binding(Value, frozen=True):
    """One container and the parts of GPUs that are its own until it has ended."""

    number: int
    reservations: tuple[int, ...]
    """The numbers of those that it redeems: one for each resource that the container asked for."""
    pod: PodIdentity
    container: str
    parts: tuple[GpuPart, ...]
    since_seconds: float
    cdi_name: str = ""
    """The device of the CDI specification that was written for it."""
    limits_name: str = ""
    """The directory in which its limits stand."""
    enforcement: Enforcement = Enforcement.ADVISE
    confirmed_by: tuple[str, ...] = ()
    """The sources that agreed on which container it is."""


class PreparedDevice(Value, frozen=True):
    """One device that was made ready for a claim."""

    requests: tuple[str, ...]
    """The requests of the claim that it answers."""
    pool: str
    device: str
    """As the slice names it within its pool."""
    uuid: DeviceUuid
    cdi_names: tuple[str, ...] = ()
    part: GpuPart | None = None
    """How much of the GPU it is; `None` for all of the device."""


class PreparedClaim(Value, frozen=True):
    """A claim whose devices are ready for the pods that it is reserved for."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]
    since_seconds: float


class Step(Value, frozen=True):
    """One step of a change, written down before it is taken."""

    name: str
    at_seconds: float
    payload: str = ""
    """What its owner needs in order to go on from here or to go back; nobody else reads it."""


class Change(Value, frozen=True):
    """A change of one GPU that takes several steps, and may be cut short after any."""

    number: int
    owner: str
    """The part that makes it, such as `mig` or `mps`."""
    gpu: GpuUuid
    steps: tuple[Step, ...]
    """In the order in which they were taken."""


class ChosenDoors(Value, frozen=True):
    """State: the doors that a person has set, which outrank the configuration and outlive a restart."""

    doors: Mapping[GpuUuid, Door] = field(default_factory=dict)
