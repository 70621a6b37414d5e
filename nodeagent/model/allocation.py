"""Which pod and container holds which devices."""

from enum import StrEnum

from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.values import Value


class PodIdentity(Value, frozen=True):
    """A pod as the kubelet names it; the uid is empty where the source reports none."""

    namespace: str
    name: str
    uid: str = ""

    def describe(self, container: str = "") -> str:
        """The pod's name for people, with the container's; the uid as long as no source has given the name."""
        pod = f"{self.namespace}/{self.name}" if self.name else f"pod {self.uid}"
        return f"{pod} ({container})" if container else pod


class AllocationSource(StrEnum):
    """Where the knowledge of an allocation comes from."""

    JOURNAL = "journal"
    POD_RESOURCES = "pod_resources"
    CHECKPOINT = "checkpoint"
    CLAIM = "claim"
    """By a claim, past every device plugin."""


class Allocation(Value, frozen=True):
    """Devices handed to a container in a single answer."""

    number: int
    resource: ResourceName
    devices: tuple[DeviceId, ...]
    since_seconds: float
    pod: PodIdentity | None = None
    container: str = ""
    source: AllocationSource = AllocationSource.JOURNAL
    forgotten: bool = False
    """Whether the kubelet no longer knows of the allocation although the pod lives."""

    def describe_holder(self) -> str:
        """Pod and container where known, else the number of the allocation in their place."""
        return f"allocation {self.number}" if self.pod is None else self.pod.describe(self.container)


class AllocationTable(Value, frozen=True):
    """State: all living allocations of the node's GPUs."""

    allocations: tuple[Allocation, ...] = ()

    def holders(self, device_id: str) -> tuple[Allocation, ...]:
        """The allocations of a given device."""
        return tuple(allocation for allocation in self.allocations if device_id in allocation.devices)


class ClaimedDevice(Value, frozen=True):
    """A device given to a container by a claim of dynamic resource allocation, past every device plugin."""

    pod: PodIdentity
    container: str
    claim: str
    claim_namespace: str
    driver: str
    pool: str
    device: str
    """As the driver names the device within its pool."""


class ClaimTable(Value, frozen=True):
    """State: all claimed devices of the node's pods, of whatever driver."""

    devices: tuple[ClaimedDevice, ...] = ()


class AllocationRow(Value, frozen=True):
    """A living or ended allocation, as a row for people and programs."""

    number: int
    resource: str
    devices: tuple[str, ...]
    namespace: str
    pod: str
    """The pod's name, or uid where only the uid is known; empty while the kubelet has not named the pod."""
    container: str
    since_seconds: float
    until_seconds: float | None
    state: str
    source: str
