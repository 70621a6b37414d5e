"""The GPUs of nodes with other agents: gpu-manager's nodes by capacity alone, HAMi's by annotation.

Owns the reading; in place of missing details the least is assumed: GPUs of equal size, all equally near.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from nodeagent.model.errors import PublicationUnreadable, RequestInvalid
from nodeagent.model.ids import GpuUuid
from nodeagent.model.nvidia import HAMI_REGISTER
from nodeagent.rules.fractions.bound import BOUND_ANNOTATION, read_bound
from nodeagent.rules.fractions.profiles import MIB, CoresProfile, CountedProfile
from nodeagent.rules.fractions.published import ANNOTATION, Published, PublishedGpu, read_published
from nodeagent.rules.fractions.requests import read_quantity
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.space import CORES, GpuRoom, Space

REGISTERED: Final = HAMI_REGISTER
_LONGEST: Final = 262144
_GPUS_MAX: Final = 256


class _Registered(msgspec.Struct, frozen=True):
    """One GPU as HAMi's device plugin registers it; missing fields are zero."""

    id: str
    index: int = 0
    count: int = 0
    devmem: int = 0
    type: str = ""
    numa: int = 0
    health: bool = False


def read_node(
    cores: CoresProfile, shares: CountedProfile, annotations: Mapping[str, str], capacity: Mapping[str, str]
) -> Published | None:
    """The fractions given out by a node, as published by the agent, by HAMi, or as the capacity of gpu-manager.

    Raises:
        PublicationUnreadable: the publication makes no sense.
    """
    if ANNOTATION in annotations:
        published, bound = read_published(annotations[ANNOTATION]), annotations.get(BOUND_ANNOTATION, "")
        gpus = {gpu.index: gpu.uuid for gpu in published.gpus}
        return replace(published, bound=read_bound(bound, gpus)) if bound else published
    if REGISTERED in annotations:
        return _read_registered(shares, annotations[REGISTERED])
    return _read_capacity(cores, capacity)


def _read_capacity(profile: CoresProfile, capacity: Mapping[str, str]) -> Published | None:
    """A GPU for each hundred cores, with equal amounts of the memory blocks."""
    try:
        count = (read_quantity(profile.core, capacity) or 0) // CORES
        blocks = read_quantity(profile.memory, capacity) or 0
    except RequestInvalid as error:
        raise PublicationUnreadable(f"capacity {error.resource}", error.reason) from error
    if count < 1:
        return None
    if count > _GPUS_MAX:
        raise PublicationUnreadable(f"capacity {profile.core}", f"{count} GPUs are told, at most {_GPUS_MAX} are read")
    memory = blocks // count * profile.block_bytes
    gpus = [PublishedGpu(uuid=GpuUuid(str(index)), index=index) for index in range(count)]
    rooms = [GpuRoom(gpu=gpu.uuid, index=gpu.index, memory_bytes=memory) for gpu in gpus]
    space = _plan_flat(rooms, profile.block_bytes)
    return Published(profile="tencent", space=space, gpus=tuple(gpus), has_uuids=False)


def _read_registered(profile: CountedProfile, text: str) -> Published:
    try:
        found = msgspec.json.decode(text[:_LONGEST], type=list[_Registered])
    except (msgspec.DecodeError, RecursionError) as error:
        raise PublicationUnreadable(REGISTERED, str(error)) from error
    found = sorted(found, key=lambda gpu: (gpu.index, gpu.id))
    if len({gpu.id for gpu in found}) < len(found) or len(found) > _GPUS_MAX:
        raise PublicationUnreadable(REGISTERED, f"it has a GPU twice, or more than {_GPUS_MAX}")
    if any(min(gpu.index, gpu.count, gpu.devmem) < 0 for gpu in found):
        raise PublicationUnreadable(REGISTERED, "a number in it is below zero")
    rooms = [
        GpuRoom(
            gpu=GpuUuid(gpu.id),
            index=gpu.index,
            memory_bytes=gpu.devmem * MIB,
            users_max=gpu.count,
            withheld="" if gpu.health else "its device plugin calls it unhealthy",
        )
        for gpu in found
    ]
    gpus = tuple(
        PublishedGpu(
            uuid=GpuUuid(gpu.id),
            index=gpu.index,
            model=gpu.type,
            numa_node=gpu.numa,
            held="" if gpu.health else "unhealthy",
        )
        for gpu in found
    )
    return Published(profile="hami", space=_plan_flat(rooms, profile.block_bytes), gpus=gpus)


def _plan_flat(rooms: Sequence[GpuRoom], block_bytes: int) -> Space:
    """All GPUs under one node of the tree, since the links are unknown."""
    leaves = tuple(Tree(position=position) for position in range(len(rooms)))
    tree = leaves[0] if len(leaves) == 1 else Tree(branches=leaves)
    return Space(rooms=tuple(rooms), tree=tree, block_bytes=block_bytes)
