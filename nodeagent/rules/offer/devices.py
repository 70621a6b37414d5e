"""The words of the node's offer: devices, resources, and problems.

Owns values shared by the decisions beside it; decides nothing.
"""

from collections.abc import Sequence
from typing import Final, Literal

from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import DEFAULT_PREFIX, ResourcePattern
from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.ids import DeviceId, DeviceUuid, GpuUuid, ResourceName
from nodeagent.model.nvidia import SOCKET_PREFIX
from nodeagent.model.values import Value
from nodeagent.rules.ids import render_device_id, render_index
from nodeagent.rules.mig.profiles import plain_profile
from nodeagent.rules.selectors import fits_pattern

SharingStrategy = Literal["none", "time-slicing", "mps"]


class PluginDevice(Value, frozen=True):
    """One device for the kubelet, with the fields that an Allocate answer needs."""

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
    """Why the device must not be handed out whatever its health; empty when it may."""
    by_mps: bool = False
    """Whether containers use replicas of it through a daemon of the multi-process service."""


class Resource(Value, frozen=True):
    """An extended resource with its devices, in index order."""

    name: ResourceName
    devices: tuple[PluginDevice, ...]
    one_share_each: bool = False
    """Whether a container may have no more than one replica of a shared device."""

    @property
    def socket(self) -> str:
        """The bare name of the resource's socket: well known for the vendor's names, and never another resource's."""
        domain, _, base = self.name.partition("/")
        return f"{SOCKET_PREFIX if domain == DEFAULT_PREFIX else domain}-{base}.sock"


class ResourceProblem(Value, frozen=True):
    """An impossible offer that was asked for."""

    subject: str
    """The resource, the device, or the part of the configuration."""
    reason: str


class ResourcePlan(Value, frozen=True):
    """Everything on offer, by name, and the problems."""

    resources: tuple[Resource, ...] = ()
    problems: tuple[ResourceProblem, ...] = ()

    def find(self, name: str) -> Resource | None:
        """The resource with the given name, if offered."""
        return next((resource for resource in self.resources if resource.name == name), None)


class Candidate(Value, frozen=True):
    """A GPU or a MIG device on the way to a resource."""

    gpu: Gpu
    mig: MigDevice | None = None
    withheld: str = ""

    @property
    def uuid(self) -> DeviceUuid:
        """The UUID to give to a container."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid

    def device(self, replica: int | None = None, *, by_mps: bool = False) -> PluginDevice:
        """The device as offered, or a replica of the device."""
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
    """A GPU or a MIG device with resource name and number of replicas."""

    device: Candidate
    base: ResourceName
    """The resource's name if the device were not shared."""
    resource: ResourceName
    replicas: int = 1
    by_mps: bool = False
    """Whether replicas are used at the same time, through a daemon, rather than by time slicing."""

    @property
    def strategy(self) -> SharingStrategy:
        """How containers share the device; `none` for an unshared device."""
        if self.replicas == 1:
            return "none"
        return "mps" if self.by_mps else "time-slicing"

    @property
    def renamed(self) -> bool:
        """Whether pods with a request for whole devices by the former name cannot be given a replica."""
        return self.resource != self.base

    def list_devices(self) -> tuple[PluginDevice, ...]:
        """The device as the kubelet will know it, or each replica."""
        shares = range(self.replicas) if self.replicas > 1 else (None,)
        return tuple(self.device.device(share, by_mps=self.by_mps) for share in shares)


class Offer(Value, frozen=True):
    """Every offered device, in index order, and the problems."""

    devices: tuple[Offered, ...] = ()
    problems: tuple[ResourceProblem, ...] = ()


NAME_MAX: Final = 63


_WHOLE_GPU: Final = "gpu"


def full_name(name: str, prefix: str) -> ResourceName:
    """The name under the node's prefix; a domain other than the vendor's own is taken as meant."""
    domain, slash, base = name.rpartition("/")
    return ResourceName(name if slash and domain != DEFAULT_PREFIX else f"{prefix}/{base}")


def plan_name(candidate: Candidate, settings: Settings) -> ResourceName:
    """The full name of the device's resource, before sharing."""
    if candidate.mig is None:
        name = _find_name(candidate.gpu.name, settings.resources.gpus, _WHOLE_GPU)
    else:
        like_gpu = settings.device_plugin.mig_strategy == "single"
        default = _WHOLE_GPU if like_gpu else f"mig-{plain_profile(candidate.mig.profile)}"
        name = _find_name(candidate.mig.profile, settings.resources.mig, default)
    return full_name(name, settings.device_plugin.resource_prefix)


def _find_name(subject: str, patterns: Sequence[ResourcePattern], default: str) -> str:
    return next((entry.name for entry in patterns if fits_pattern(subject, entry.pattern)), default)
