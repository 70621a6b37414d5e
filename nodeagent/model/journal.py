"""The journal's values beside whole devices: fractions, claims, changes under way, allocation modes set by a person."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, TypeAlias

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.mps import MpsLimits
from nodeagent.model.offering import AllocationMode
from nodeagent.model.values import Value

DeviceIds: TypeAlias = tuple[ResourceName, frozenset[DeviceId]]
"""Device ids of a resource, in any order."""


class Reservation(Value, frozen=True):
    """Device ids of a single resource, promised in an answer to the kubelet before the container is known."""

    number: int
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    """The device ids; ids released by an init container stand in the reservation of the container after it too."""
    since_seconds: float
    cdi_name: str = ""
    """The CDI name in the answer, the container's identity for now; empty where the answer had none."""
    kubelet_run: str = ""
    """The run of the kubelet that asked; empty where the run is not known (any more)."""

    @property
    def tokens(self) -> DeviceIds:
        """The resource and the device ids, in any order."""
        return self.resource, frozenset(self.devices)


class GpuFraction(Value, frozen=True):
    """An amount of a single GPU."""

    gpu: GpuUuid
    cores: int
    """Hundredths of the GPU's compute."""
    memory_bytes: int


class Enforcement(StrEnum):
    """How a container is held within its fraction."""

    ADVISE = "advise"
    LIBRARY = "library"
    MPS = "mps"
    COUNTED = "counted"
    """Counted and told, and not enforced by anything: devices of other vendors."""


class Binding(Value, frozen=True):
    """A container and its fractions of GPUs, until the container has ended."""

    number: int
    reservations: tuple[int, ...]
    """Numbers of the redeemed reservations: one for each resource of the container."""
    pod: PodIdentity
    container: str
    parts: tuple[GpuFraction, ...]
    since_seconds: float
    cdi_name: str = ""
    """The device of the CDI specification written for the container."""
    enforcement: Enforcement = Enforcement.ADVISE
    core_limit: int | None = None
    """Usable hundredths of each GPU while no other container uses it; `None` where the fraction is the limit."""
    why: str = ""
    """The reason for the choice of these GPUs."""
    confirmed_by: tuple[str, ...] = ()
    """The sources that agreed on the container's identity."""

    def describe(self) -> str:
        """Pod and container, for people."""
        return f"{self.pod.describe()} ({self.container})"


class FractionTable(Value, frozen=True, dict=True):
    """State: all promised and bound fractions of GPUs, by number."""

    shown_as: ClassVar[str] = "PartTable"

    reservations: Mapping[int, Reservation] = field(default_factory=dict)
    """Redeemed reservations too: their device ids are held until the binding is released."""
    bindings: Mapping[int, Binding] = field(default_factory=dict)

    @cached_property
    def redeemed(self) -> Mapping[int, int]:
        """The binding of each redeemed reservation."""
        return {number: binding.number for binding in self.bindings.values() for number in binding.reservations}

    @cached_property
    def by_gpu(self) -> Mapping[GpuUuid, tuple[Binding, ...]]:
        """The bindings on each GPU with bindings, in the order of their numbers."""
        found: dict[GpuUuid, list[Binding]] = {}
        for _, binding in sorted(self.bindings.items()):
            for gpu in dict.fromkeys(part.gpu for part in binding.parts):
                found.setdefault(gpu, []).append(binding)
        return {gpu: tuple(bindings) for gpu, bindings in found.items()}

    @cached_property
    def promised(self) -> Mapping[DeviceIds, tuple[int, ...]]:
        """The reservations of each set of device ids, the oldest first; a copied table inherits the index."""
        found: dict[DeviceIds, tuple[int, ...]] = {}
        for number, reservation in sorted(self.reservations.items()):
            found[reservation.tokens] = (*found.get(reservation.tokens, ()), number)
        return found

    def find_reservations(self, resource: ResourceName, devices: Iterable[DeviceId]) -> tuple[Reservation, ...]:
        """The reservations of exactly these ids, the oldest first; several where an init container had them before."""
        return tuple(self.reservations[number] for number in self.promised.get((resource, frozenset(devices)), ()))

    def is_redeemed(self, resource: ResourceName, devices: Iterable[DeviceId]) -> bool:
        """Whether a binding has these ids."""
        return any(each.number in self.redeemed for each in self.find_reservations(resource, devices))

    def find_binding(self, reservation: int) -> Binding | None:
        """The binding that has redeemed a reservation."""
        number = self.redeemed.get(reservation)
        return None if number is None else self.bindings[number]

    def sum_fractions(self, gpu: GpuUuid, without: Collection[int] = ()) -> GpuFraction:
        """How much of a GPU is bound, without the bindings of these numbers."""
        # Not by `by_gpu`: a container waits for the sum of a single GPU, and the index would be built for nothing else.
        parts = [
            part
            for binding in self.bindings.values()
            for part in binding.parts
            if part.gpu == gpu and binding.number not in without
        ]
        return GpuFraction(
            gpu=gpu, cores=sum(part.cores for part in parts), memory_bytes=sum(part.memory_bytes for part in parts)
        )


class SharingWay(StrEnum):
    """How several containers of a claim use a device together."""

    TIME_SLICING = "TimeSlicing"
    MPS = "MPS"


class ClaimSharing(Value, frozen=True):
    """How the containers of a claim share a device, by the claim's configuration."""

    way: SharingWay
    interval: str = ""
    """The time slice of each container: `Default`, `Short`, `Medium`, `Long`; empty for MPS."""
    mps: MpsLimits | None = None
    """Limits of each client of MPS; `None` for time slicing."""
    group: int = 0
    """Devices of the same group are shared together."""

    @property
    def needs_whole_gpu(self) -> bool:
        """Whether other claims must not have the GPU: a daemon of MPS or a time slice is all of the GPU's."""
        return self.way is SharingWay.MPS or self.interval not in ("", "Default")


class PreparedDevice(Value, frozen=True):
    """A device made ready for a claim."""

    requests: tuple[str, ...]
    """The claim's requests satisfied by the device."""
    pool: str
    device: str
    """As the slice names the device within its pool."""
    uuid: DeviceUuid
    """Empty for a MIG device before its creation."""
    cdi_names: tuple[str, ...] = ()
    part: GpuFraction | None = None
    """The fraction of the GPU; `None` for all of the device."""
    gpu: GpuUuid = GpuUuid("")
    """The GPU itself, or the parent of the MIG device."""
    share_id: str = ""
    is_admin: bool = False
    """Whether the device is for monitoring, beside its holder."""
    sharing: ClaimSharing | None = None
    is_made: bool = False
    """Whether the device is a MIG device created for the claim, and removed with the claim."""
    alternative: str = ""
    """The chosen alternative of the request; empty for a request without alternatives."""


class PreparedClaim(Value, frozen=True):
    """A claim whose devices are ready for the pods with a reservation, or are being made ready."""

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]
    since_seconds: float
    pods: tuple[PodIdentity, ...] = ()
    """The pods with a reservation when the claim was prepared."""
    is_ready: bool = True
    """False while the preparation may be half done: it is repeated from its start, or undone."""
    pod_claim_name: str = ""
    """The pod's own name for a claim made from a template; empty for any other claim."""
    has_metadata: bool = False
    """Whether containers of the claim get metadata files; decided once, as a running container keeps its mounts."""

    def describe(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class EndedClaim(Value, frozen=True):
    """A claim put away: a late Prepare for the same pods is refused."""

    uid: str
    pods: tuple[PodIdentity, ...]
    at_seconds: float


class Step(Value, frozen=True):
    """A step of a change, written before the step is taken."""

    name: str
    at_seconds: float
    payload: str = ""
    """The owner's data for going on from the step or going back; opaque to others."""


class Change(Value, frozen=True):
    """A change of a GPU in several steps, possibly cut short after any."""

    number: int
    owner: str
    """The component making the change, such as `mig` or `mps`."""
    gpu: GpuUuid
    steps: tuple[Step, ...]
    """In the order of execution."""


class ChosenAllocationModes(Value, frozen=True):
    """State: the allocation modes set by a person, which outrank the configuration and outlive a restart."""

    shown_as: ClassVar[str] = "ChosenDoors"

    doors: Mapping[GpuUuid, AllocationMode] = field(default_factory=dict)
