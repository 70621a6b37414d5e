"""Claims of dynamic resource allocation: as the kubelet names them, as the API has them, and as the node keeps them."""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.model.slices import DeviceTaint
from nodeagent.model.values import Value


class ClaimReference(Value, frozen=True):
    """A claim as the kubelet asks about it."""

    namespace: str
    name: str
    uid: str

    def describe(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class DeviceToleration(Value, frozen=True):
    """A toleration of device taints by a claim."""

    key: str = ""
    """Empty for all taints."""
    value: str | None = None
    """`None` for any value."""
    effect: str = ""
    """Empty for every effect."""

    def covers(self, taint: DeviceTaint) -> bool:
        """Whether a device with the taint may be allocated to the claim."""
        return (
            self.key in {"", taint.key}
            and (self.value is None or self.value == taint.value)
            and self.effect in {"", taint.effect}
        )


class ClaimResult(Value, frozen=True):
    """A device allocated to a claim by the scheduler."""

    request: str
    """`name`, or `name/alternative` where the claim listed alternatives."""
    driver: str
    pool: str
    device: str
    is_admin: bool = False
    share_id: str = ""
    """The share of the device; empty where claims do not share the device."""
    consumed: Mapping[str, str] = field(default_factory=dict)
    """How much of each capacity the share takes, as the API server writes quantities."""
    tolerations: tuple[DeviceToleration, ...] = ()
    awaited: tuple[str, ...] = ()
    """The conditions of the device for which the scheduler waits before the pod is bound."""
    reached: frozenset[str] = frozenset()
    """The conditions of the device that are true."""


class OpaqueConfig(Value, frozen=True):
    """Parameters of a class or a claim in the driver's own format, not yet parsed."""

    source: str
    """`FromClass` or `FromClaim`."""
    requests: tuple[str, ...]
    """The requests concerned; empty means all."""
    driver: str
    """Empty where the configuration is of a kind unknown to this version."""
    parameters: object = None


class ResourceClaim(Value, frozen=True):
    """A claim as the API server has it, as far as a node needs it."""

    namespace: str
    name: str
    uid: str
    is_allocated: bool
    results: tuple[ClaimResult, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    """In the API's order: the order of precedence within a source."""
    pods: tuple[PodIdentity, ...] = ()
    """The pods with a reservation of the claim."""
    pod_claim_name: str = ""
    """The pod's own name for a claim made from a template; empty for any other claim."""
    version: str = ""
    """Of the object; the API server refuses a change made to another version."""
    allocated_at: str = ""
    """The time of the allocation in the API server's form: a claim that is allocated anew keeps its uid."""
    statuses: tuple[object, ...] = ()
    """The API server's documents about the allocated devices, by any driver."""


class DeviceAnswer(Value, frozen=True):
    """A device of a prepared claim, as answered to the kubelet."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_names: tuple[str, ...]
    share_id: str = ""


class DeviceHealth(Value, frozen=True):
    """The health of a device, as the kubelet shows it in the status of pods."""

    pool: str
    device: str
    is_healthy: bool | None
    """`None` while unknown."""
    message: str = ""


class ClaimStanding(Value, frozen=True):
    """State: the driver's registration with the kubelet, and the reason where claims cannot be answered."""

    driver: str
    socket: str
    registered: bool
    last_error: str = ""


class ReadyClaims(Value, frozen=True, dict=True):
    """State: all claims made ready on the node, by uid."""

    shown_as: ClassVar[str] = "ClaimBook"

    claims: Mapping[str, PreparedClaim] = field(default_factory=dict)

    @cached_property
    def by_gpu(self) -> Mapping[GpuUuid, tuple[tuple[PreparedClaim, PreparedDevice], ...]]:
        """The claims with each GPU, or with a fraction or MIG device of the GPU; admin access is left out."""
        found: dict[GpuUuid, list[tuple[PreparedClaim, PreparedDevice]]] = {}
        for claim in self.claims.values():
            for device in claim.devices:
                if not device.is_admin:
                    found.setdefault(device.gpu, []).append((claim, device))
        return {gpu: tuple(holders) for gpu, holders in found.items()}


class NominatedPod(Value, frozen=True):
    """A pod that a scheduler has chosen the node for, and has not bound yet."""

    pod: PodIdentity
    claims: tuple[str, ...] = ()
    """The names of the pod's claims, all in the pod's namespace."""


class DeviceCondition(Value, frozen=True):
    """The end of a scheduler's wait for an allocated device."""

    result: ClaimResult
    is_proven: bool
    """Whether the pod may be bound; the scheduler chooses devices anew otherwise."""
    reason: str
    """A word for programs."""
    message: str
