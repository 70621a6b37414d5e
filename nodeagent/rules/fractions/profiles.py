"""By which names parts of GPUs are asked for: as cores and blocks of memory, or as shares whose size the pod tells.

Owns the names that clusters already use, each of which the configuration may change.
"""

from typing import Final, TypeAlias

from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.ids import ResourceName
from nodeagent.model.values import Value

MIB: Final = 1 << 20


class CoresProfile(Value, frozen=True):
    """Two resources that are counted: hundredths of a GPU, and blocks of its memory."""

    core: ResourceName = ResourceName("tencent.com/vcuda-core")
    memory: ResourceName = ResourceName("tencent.com/vcuda-memory")
    block_bytes: int = 256 * MIB
    core_limit: str = "tencent.com/vcuda-core-limit"
    """The annotation by which a pod may use more compute than it is promised while nobody else does."""
    predicate: str = "tencent.com/predicate-gpu-idx-"
    """The annotation in which a scheduler says its choice, without the container's number at its end."""
    predicate_uuid: str = "tencent.com/predicate-gpu-uuid-"
    """The same by UUIDs, which mean the same GPUs after a reboot; `init-` and its number for an init container."""
    predicate_node: str = "tencent.com/predicate-node"
    predicate_time: str = "tencent.com/predicate-time"
    assigned: str = "tencent.com/gpu-assigned"


class SharesProfile(Value, frozen=True):
    """One resource that counts shares; what the pod asks for beside it says how large each is."""

    share: ResourceName = ResourceName("nvidia.com/gpu")
    memory_mib: str = "nvidia.com/gpumem"
    memory_percent: str = "nvidia.com/gpumem-percentage"
    cores: str = "nvidia.com/gpucores"
    shares_per_gpu: int = 10
    block_bytes: int = MIB
    """The unit in which memory is asked for."""
    allocated: tuple[str, ...] = ("hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate")
    """The annotations in which a scheduler says its choice, the one that is kept first."""
    chosen_node: str = "hami.io/vgpu-node"
    chosen_time: str = "hami.io/vgpu-time"


Profile: TypeAlias = CoresProfile | SharesProfile


def plan_cores(settings: FractionsSettings) -> CoresProfile:
    """The names of cores and blocks as they are configured."""
    return CoresProfile(
        core=ResourceName(settings.core_resource),
        memory=ResourceName(settings.memory_resource),
        block_bytes=settings.block_mib * MIB,
        core_limit=settings.core_limit_annotation,
        predicate=settings.predicate_annotation,
    )


def plan_shares(settings: FractionsSettings) -> SharesProfile:
    """The names of shares as they are configured."""
    return SharesProfile(share=ResourceName(settings.share_resource), shares_per_gpu=settings.shares_per_gpu)


def plan_profile(settings: FractionsSettings) -> Profile:
    """The names by which this node gives parts out."""
    return plan_shares(settings) if settings.profile == "hami" else plan_cores(settings)
