"""The names by which pods ask for fractions: cores and blocks of memory, or shares with a size given by the pod.

Owns the names in use on clusters; the configuration may change each of them.
"""

from typing import Final, TypeAlias

from msgspec.structs import replace

from nodeagent.config.sections.devices import name_class_resources
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.ids import ResourceName
from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.values import Value

MIB: Final = 1 << 20


class CoresProfile(Value, frozen=True):
    """Two counted resources: hundredths of a GPU, and blocks of GPU memory."""

    core: ResourceName = ResourceName("tencent.com/vcuda-core")
    memory: ResourceName = ResourceName("tencent.com/vcuda-memory")
    block_bytes: int = 256 * MIB
    core_limit: str = "tencent.com/vcuda-core-limit"
    """The annotation by which a pod may use more compute than its promise while no other container does."""
    predicate: str = "tencent.com/predicate-gpu-idx-"
    """The annotation of a scheduler's choice, without the container's number at its end."""
    predicate_uuid: str = "tencent.com/predicate-gpu-uuid-"
    """The same by UUIDs, which mean the same GPUs after a reboot; `init-` and its number for an init container."""
    predicate_node: str = "tencent.com/predicate-node"
    predicate_time: str = "tencent.com/predicate-time"
    assigned: str = "tencent.com/gpu-assigned"
    device_class: str = ""
    """The resource of the class whose devices are divided; empty for the driver's GPUs."""


class CountedProfile(Value, frozen=True):
    """One counted resource, the share; other resources of the pod give the size of each share."""

    share: ResourceName = ResourceName(f"{DOMAIN}/gpu")
    memory_mib: str = f"{DOMAIN}/gpumem"
    memory_percent: str = f"{DOMAIN}/gpumem-percentage"
    cores: str = f"{DOMAIN}/gpucores"
    shares_per_gpu: int = 10
    block_bytes: int = MIB
    """The unit of memory requests."""
    allocated: tuple[str, ...] = ("hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate")
    """The annotations of a scheduler's choice, the preferred one first."""
    chosen_node: str = "hami.io/vgpu-node"
    chosen_time: str = "hami.io/vgpu-time"


Profile: TypeAlias = CoresProfile | CountedProfile


def plan_cores(settings: FractionsSettings) -> CoresProfile:
    """The names of cores and blocks as configured."""
    return CoresProfile(
        core=ResourceName(settings.core_resource),
        memory=ResourceName(settings.memory_resource),
        block_bytes=settings.block_mib * MIB,
        core_limit=settings.core_limit_annotation,
        predicate=settings.predicate_annotation,
    )


def plan_class_profile(settings: FractionsSettings, resource: str) -> CoresProfile:
    """The names of cores and blocks of a divisible class: blocks and annotations are those of GPUs."""
    core, memory = name_class_resources(resource)
    return replace(plan_cores(settings), core=core, memory=memory, device_class=resource)


def name_profile(profile: Profile) -> str:
    """The word for the names of a profile: a class's resource, or a word of `fractions.profile`."""
    if isinstance(profile, CoresProfile):
        return profile.device_class or "tencent"
    return "hami"


def find_class(profile: str) -> str:
    """The class behind the word for a profile; empty for the driver's GPUs."""
    return profile if "/" in profile else ""


def plan_counted_profiles(settings: FractionsSettings) -> CountedProfile:
    """The names of shares as configured."""
    return CountedProfile(share=ResourceName(settings.share_resource), shares_per_gpu=settings.shares_per_gpu)


def plan_profile(settings: FractionsSettings) -> Profile:
    """The names for fractions on this node."""
    return plan_counted_profiles(settings) if settings.profile == "hami" else plan_cores(settings)
