"""Who holds what."""

from enum import StrEnum

from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.values import Value


class PodIdentity(Value, frozen=True):
    """A pod as the kubelet names it; the uid is empty where the source does not tell it."""

    namespace: str
    name: str
    uid: str = ""

    def describe(self) -> str:
        """Its name for people; its uid as long as nobody has told more."""
        return f"{self.namespace}/{self.name}" if self.name else f"pod {self.uid}"


class AllocationSource(StrEnum):
    """Where the knowledge of an allocation comes from."""

    JOURNAL = "journal"
    POD_RESOURCES = "pod_resources"
    CHECKPOINT = "checkpoint"
    CLAIM = "claim"
    """By a claim, past every device plugin."""


class Allocation(Value, frozen=True):
    """Devices handed to one container in one answer."""

    number: int
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    since_seconds: float
    pod: PodIdentity | None = None
    container: str = ""
    source: AllocationSource = AllocationSource.JOURNAL
    forgotten: bool = False
    """Whether the kubelet no longer knows of it although its pod lives."""


class AllocationTable(Value, frozen=True):
    """State: all living allocations of this node's GPUs."""

    allocations: tuple[Allocation, ...] = ()

    def holders(self, device_id: str) -> tuple[Allocation, ...]:
        """The allocations that name this device."""
        return tuple(allocation for allocation in self.allocations if device_id in allocation.devices)


class ClaimedDevice(Value, frozen=True):
    """A device that a container was given by a claim of dynamic resource allocation, past every device plugin."""

    pod: PodIdentity
    container: str
    claim: str
    claim_namespace: str
    driver: str
    pool: str
    device: str
    """As the driver names it within its pool."""


class ClaimTable(Value, frozen=True):
    """State: all claimed devices of this node's pods, of whatever driver."""

    devices: tuple[ClaimedDevice, ...] = ()


class AllocationRow(Value, frozen=True):
    """One allocation, living or ended, as a row for people and programs."""

    number: int
    resource: str
    devices: tuple[str, ...]
    namespace: str
    pod: str
    """Name, or uid where only that is known; empty while the kubelet has not named it."""
    container: str
    since_seconds: float
    until_seconds: float | None
    state: str
    source: str
