"""The words of what this node offers: devices, resources, and what cannot be offered.

Owns values that the decisions beside it share; decides nothing.
"""

from typing import Literal

from nodeagent.config.sections.sharing import DEFAULT_PREFIX
from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.values import Value
from nodeagent.rules.ids import render_device_id, render_index

SharingStrategy = Literal["none", "time-slicing", "mps"]


class PluginDevice(Value, frozen=True):
    """One device as the kubelet will know it, with what an Allocate answer needs to know of it."""

    id: DeviceId
    uuid: DeviceUuid
    gpu: GpuUuid
    index: str
    """`0` for a GPU, `0:1` for a MIG device."""
    minor: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    replica: int | None = None
    numa_node: int | None = None
    withheld: str = ""
    """Why it must not be handed out whatever its health; empty when it may."""
    by_mps: bool = False
    """Whether those who have a share of it go through a daemon of the multi-process service."""


class Resource(Value, frozen=True):
    """One extended resource and its devices, in index order."""

    name: ResourceName
    devices: tuple[PluginDevice, ...]
    one_share_each: bool = False
    """Whether a container may have no more than one share of a shared device."""

    @property
    def socket(self) -> str:
        """The bare name of its socket: the one people know for NVIDIA's names, and never that of another resource."""
        domain, _, base = self.name.partition("/")
        return f"{'nvidia' if domain == DEFAULT_PREFIX else domain}-{base}.sock"


class ResourceProblem(Value, frozen=True):
    """Something that was asked for and cannot be offered."""

    subject: str
    """A resource, a device, or the part of the configuration that it is about."""
    reason: str


class ResourcePlan(Value, frozen=True):
    """Everything to offer, by name, and everything that cannot be."""

    resources: tuple[Resource, ...] = ()
    problems: tuple[ResourceProblem, ...] = ()

    def find(self, name: str) -> Resource | None:
        """The resource of this name, if it is offered."""
        return next((resource for resource in self.resources if resource.name == name), None)


class Candidate(Value, frozen=True):
    """A GPU or a MIG device on its way to a resource."""

    gpu: Gpu
    mig: MigDevice | None = None
    withheld: str = ""

    @property
    def uuid(self) -> DeviceUuid:
        """What a container would be given."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid

    def device(self, replica: int | None = None, *, by_mps: bool = False) -> PluginDevice:
        """The device as offered, or one of its shares."""
        numa = self.gpu.numa_node
        return PluginDevice(
            id=render_device_id(self.uuid, replica),
            uuid=self.uuid,
            gpu=self.gpu.uuid,
            index=render_index(self.gpu, self.mig),
            minor=self.gpu.minor,
            gpu_instance_id=None if self.mig is None else self.mig.gpu_instance_id,
            compute_instance_id=None if self.mig is None else self.mig.compute_instance_id,
            replica=replica,
            # a node that the kernel does not know is no node 0: the kubelet then gets no topology at all
            numa_node=numa if numa is not None and numa >= 0 else None,
            withheld=self.withheld,
            by_mps=by_mps,
        )


class Offered(Value, frozen=True):
    """A GPU or a MIG device as it is offered: by which name, and how many times."""

    device: Candidate
    base: ResourceName
    """What its resource would be called if it were not shared."""
    resource: ResourceName
    replicas: int = 1
    by_mps: bool = False
    """Whether its shares are used at the same time, through a daemon, rather than by turns."""

    @property
    def strategy(self) -> SharingStrategy:
        """How those who hold a share of it use it; `none` for a device that is not shared."""
        if self.replicas == 1:
            return "none"
        return "mps" if self.by_mps else "time-slicing"

    @property
    def renamed(self) -> bool:
        """Whether pods that ask for whole devices by the name of old cannot be given a share of it."""
        return self.resource != self.base

    def list_devices(self) -> tuple[PluginDevice, ...]:
        """What the kubelet will know: the device, or each of its shares."""
        shares = range(self.replicas) if self.replicas > 1 else (None,)
        return tuple(self.device.device(share, by_mps=self.by_mps) for share in shares)


class Offer(Value, frozen=True):
    """Every device that is offered, in index order, and what cannot be."""

    devices: tuple[Offered, ...] = ()
    problems: tuple[ResourceProblem, ...] = ()
