"""Claims of dynamic resource allocation: as the kubelet names them, as the API has them, and as the node keeps them."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.model.values import Value


class ClaimReference(Value, frozen=True):
    """A claim as the kubelet asks about it."""

    namespace: str
    name: str
    uid: str

    def describe(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ClaimResult(Value, frozen=True):
    """One device that the scheduler has allocated to a claim."""

    request: str
    """`name`, or `name/alternative` where the claim said what would do instead."""
    driver: str
    pool: str
    device: str
    is_admin: bool = False
    share_id: str = ""
    """Which of several shares of the device; empty where it is not shared between claims."""
    consumed: Mapping[str, str] = field(default_factory=dict)
    """How much of each capacity that is, as the API server writes quantities."""


class OpaqueConfig(Value, frozen=True):
    """What a class or a claim asks of a driver in the driver's own words, not yet looked at."""

    source: str
    """`FromClass` or `FromClaim`."""
    requests: tuple[str, ...]
    """Those that it is for; none means all."""
    driver: str
    """Empty where it is of a kind that the API got after this was written."""
    parameters: object = None


class ResourceClaim(Value, frozen=True):
    """A claim as the API server has it, as far as a node needs it."""

    namespace: str
    name: str
    uid: str
    is_allocated: bool
    results: tuple[ClaimResult, ...] = ()
    configs: tuple[OpaqueConfig, ...] = ()
    """In the API's order, which is that of precedence within a source."""
    pods: tuple[PodIdentity, ...] = ()
    """Those that it is reserved for."""


class DeviceAnswer(Value, frozen=True):
    """One device of a prepared claim, as the kubelet is told."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_names: tuple[str, ...]
    share_id: str = ""


class DeviceHealth(Value, frozen=True):
    """What one device is good for, as the kubelet shows it in the status of pods."""

    pool: str
    device: str
    is_healthy: bool | None
    """`None` while nobody knows."""
    message: str = ""


class ClaimStanding(Value, frozen=True):
    """State: how the driver stands with the kubelet, and what keeps it from answering, if anything does."""

    driver: str
    socket: str
    registered: bool
    last_error: str = ""


class ClaimBook(Value, frozen=True, dict=True):
    """State: all claims that are made ready on this node, by uid."""

    claims: Mapping[str, PreparedClaim] = field(default_factory=dict)

    @cached_property
    def by_gpu(self) -> Mapping[GpuUuid, tuple[tuple[PreparedClaim, PreparedDevice], ...]]:
        """Who has each GPU, or a part of it; those who only look at it are left out."""
        found: dict[GpuUuid, list[tuple[PreparedClaim, PreparedDevice]]] = {}
        for claim in self.claims.values():
            for device in claim.devices:
                if not device.is_admin:
                    found.setdefault(device.gpu, []).append((claim, device))
        return {gpu: tuple(holders) for gpu, holders in found.items()}
