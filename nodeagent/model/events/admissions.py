"""Allocations to containers: given, refused and taken back."""

from typing import ClassVar

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.values import Value


class DevicesAdvertised(Value, frozen=True):
    """The kubelet was sent a list of devices."""

    resource: ResourceName
    healthy: int
    total: int


class DevicesAllocated(Value, frozen=True):
    """Devices were handed to a container; the journal held the allocation before the kubelet was answered."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    number: int


class DevicesFreed(Value, frozen=True):
    """A container's devices are free again."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    number: int


class AllocationRefused(Value, frozen=True):
    """A kubelet's request for devices was refused."""

    resource: ResourceName
    devices: tuple[DeviceId, ...]
    reason: str
    is_of_node: bool = False
    """Whether any other device would have been refused too."""


class AllocationDiffered(Value, frozen=True):
    """The journal and the kubelet did not agree on the holder of a device."""

    kind: str
    """`missing` in the journal, `orphan` in the journal, `conflict`, or `forgotten` by the kubelet."""
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    detail: str


class FractionBound(Value, frozen=True):
    """A container was given its fractions of GPUs."""

    shown_as: ClassVar[str] = "PartBound"

    number: int
    pod: PodIdentity
    container: str
    gpus: tuple[GpuUuid, ...]
    reason: str


class FractionReleased(Value, frozen=True):
    """A binding has ended, or a promise never redeemed was taken back."""

    shown_as: ClassVar[str] = "PartReleased"

    number: int
    reason: str


class FractionProcessEnded(Value, frozen=True):
    """A process was ended because its container had more of a GPU's memory than its fraction."""

    shown_as: ClassVar[str] = "PartProcessEnded"

    number: int
    pod: PodIdentity
    container: str
    gpu: GpuUuid
    pid: int
    memory_bytes: int
    reason: str


class FractionRefused(Value, frozen=True):
    """Fractions of GPUs were not promised, or a container with a promise must wait."""

    shown_as: ClassVar[str] = "PartRefused"

    resource: ResourceName
    count: int
    reason: str
    is_of_node: bool = False
    """Whether the fractions of any pod would have been refused."""


class ClaimPrepared(Value, frozen=True):
    """The devices of a claim are ready for its pods."""

    uid: str
    claim: str
    """`namespace/name`."""
    devices: tuple[str, ...]
    pods: tuple[PodIdentity, ...] = ()


class ClaimUnprepared(Value, frozen=True):
    """The devices of a claim were put away."""

    uid: str
    claim: str
    reason: str


class ClaimRefused(Value, frozen=True):
    """A claim was not made ready, or not put away; the kubelet asks again."""

    uid: str
    claim: str
    reason: str
