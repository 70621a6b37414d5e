"""What stands in the journal beside whole devices: parts of GPUs, claims, changes under way, doors set by a person."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.mps import MpsLimits
from nodeagent.model.offering import Door
from nodeagent.model.values import Value

Tokens: TypeAlias = tuple[ResourceName, frozenset[DeviceId]]
"""Tokens of a resource, in whatever order."""


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

    @property
    def tokens(self) -> Tokens:
        """Of which resource it is for which tokens, in whatever order."""
        return self.resource, frozenset(self.devices)


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
    core_limit: int | None = None
    """Hundredths that it may use of each GPU while nobody else does; `None` where that is no more than its part."""
    why: str = ""
    """What decided for these GPUs."""
    confirmed_by: tuple[str, ...] = ()
    """The sources that agreed on which container it is."""


class PartTable(Value, frozen=True, dict=True):
    """State: all parts of GPUs that are promised and bound, by number."""

    reservations: Mapping[int, Reservation] = field(default_factory=dict)
    """Also those that are redeemed: their tokens are held until the binding is released."""
    bindings: Mapping[int, Binding] = field(default_factory=dict)

    @cached_property
    def redeemed(self) -> Mapping[int, int]:
        """The binding of each reservation that has one."""
        return {number: binding.number for binding in self.bindings.values() for number in binding.reservations}

    @cached_property
    def by_gpu(self) -> Mapping[GpuUuid, tuple[Binding, ...]]:
        """Who has parts of each GPU of which somebody has one, in the order of their numbers."""
        found: dict[GpuUuid, list[Binding]] = {}
        for _, binding in sorted(self.bindings.items()):
            for gpu in dict.fromkeys(part.gpu for part in binding.parts):
                found.setdefault(gpu, []).append(binding)
        return {gpu: tuple(bindings) for gpu, bindings in found.items()}

    @cached_property
    def promised(self) -> Mapping[Tokens, tuple[int, ...]]:
        """The reservations of exactly these tokens, the oldest first; a table that comes from another is given it."""
        found: dict[Tokens, tuple[int, ...]] = {}
        for number, reservation in sorted(self.reservations.items()):
            found[reservation.tokens] = (*found.get(reservation.tokens, ()), number)
        return found

    def find_reservations(self, resource: ResourceName, devices: Iterable[DeviceId]) -> tuple[Reservation, ...]:
        """Those that have exactly these tokens, the oldest first; several where an init container had them before."""
        return tuple(self.reservations[number] for number in self.promised.get((resource, frozenset(devices)), ()))

    def is_redeemed(self, resource: ResourceName, devices: Iterable[DeviceId]) -> bool:
        """Whether a binding has these ids."""
        return any(each.number in self.redeemed for each in self.find_reservations(resource, devices))

    def find_binding(self, reservation: int) -> Binding | None:
        """The binding that has redeemed this reservation."""
        number = self.redeemed.get(reservation)
        return None if number is None else self.bindings[number]

    def sum_parts(self, gpu: GpuUuid, without: Collection[int] = ()) -> GpuPart:
        """How much of a GPU is bound, without the bindings of these numbers."""
        # Not by the GPUs' tables: a container waits for the sum of one, in a table that nobody asks for anything else.
        parts = [
            part
            for binding in self.bindings.values()
            for part in binding.parts
            if part.gpu == gpu and binding.number not in without
        ]
        return GpuPart(
            gpu=gpu, cores=sum(part.cores for part in parts), memory_bytes=sum(part.memory_bytes for part in parts)
        )


class SharingWay(StrEnum):
    """How several containers of one claim use a device together."""

    TIME_SLICING = "TimeSlicing"
    MPS = "MPS"


class ClaimSharing(Value, frozen=True):
    """What a claim's configuration says of how a device is shared by the containers that have the claim."""

    way: SharingWay
    interval: str = ""
    """How long each has its turn: `Default`, `Short`, `Medium`, `Long`; empty for MPS."""
    mps: MpsLimits | None = None
    """Of each client of MPS; `None` where they take turns."""
    group: int = 0
    """Devices of one group are shared together."""


class PreparedDevice(Value, frozen=True):
    """One device that is made ready for a claim."""

    requests: tuple[str, ...]
    """The requests of the claim that it answers."""
    pool: str
    device: str
    """As the slice names it within its pool."""
    uuid: DeviceUuid
    """Empty while it is a MIG device that is still to be made."""
    cdi_names: tuple[str, ...] = ()
    part: GpuPart | None = None
    """How much of the GPU it is; `None` for all of the device."""
    gpu: GpuUuid = GpuUuid("")
    """The GPU that it is, or is cut from."""
    share_id: str = ""
    is_admin: bool = False
    """Whether it is there to be looked at, beside whoever has it."""
    sharing: ClaimSharing | None = None
    is_made: bool = False
    """Whether it is a MIG device that is made for the claim, and goes with it."""


class PreparedClaim(Value, frozen=True):
    """A claim whose devices are ready for the pods that it is reserved for, or are being made so."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]
    since_seconds: float
    pods: tuple[PodIdentity, ...] = ()
    """Those that it was reserved for when it was prepared."""
    is_ready: bool = True
    """False while what was begun for it may be half done: it is done again from its start, or taken back."""

    def describe(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class EndedClaim(Value, frozen=True):
    """A claim that was put away: who comes late to have it made ready for the same pods is turned away."""

    uid: str
    pods: tuple[PodIdentity, ...]
    at_seconds: float


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
