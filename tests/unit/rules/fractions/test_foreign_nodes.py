"""What nodes of other agents tell of themselves."""

import json
from collections.abc import Mapping

import pytest

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.rules.fractions.foreign_nodes import REGISTERED, read_node
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from nodeagent.rules.fractions.published import ANNOTATION, Published, PublishedGpu, render_published
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.space import GpuRoom
from tests.support.gpus import gpu_uuid
from tests.support.placement import BLOCK, account, six

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"


def read(annotations: Mapping[str, str] | None = None, **capacity: str) -> Published | None:
    found = {CORE: capacity.get("core", ""), MEMORY: capacity.get("memory", "")}
    return read_node(
        CoresProfile(), CountedProfile(), annotations or {}, {key: text for key, text in found.items() if text}
    )


def register(**differences: object) -> dict[str, object]:
    known = {"id": gpu_uuid(0), "count": 10, "devmem": 1024, "devcore": 100, "type": "NVIDIA-T4", "health": True}
    return {**known, **differences}


def test_capacity_alone_is_gpus_of_equal_size() -> None:
    """As for gpu-manager's own extender: an index stands for each, and all are alike near."""
    found = read(core="250", memory="17")
    assert found is not None
    assert [(room.gpu, room.index, room.memory_bytes) for room in found.space.rooms] == [
        ("0", 0, 8 * BLOCK),
        ("1", 1, 8 * BLOCK),
    ]
    assert (found.space.block_bytes, found.space.tree.leaves) == (BLOCK, (0, 1))
    assert (found.profile, found.has_uuids) == ("tencent", False)


def test_a_single_gpu_has_no_group() -> None:
    found = read(core="100", memory="8")
    assert found is not None
    assert found.space.tree == Tree(position=0)


@pytest.mark.parametrize(("core", "memory"), [("", ""), ("", "8"), ("0", "8"), ("99", "8")])
def test_a_node_without_a_whole_gpu_gives_nothing_out(core: str, memory: str) -> None:
    assert read(core=core, memory=memory) is None


@pytest.mark.parametrize(
    ("capacity", "key", "reason"),
    [
        ({"core": "many"}, f"capacity {CORE}", "'many' is no whole number"),
        ({"core": "100", "memory": "-1"}, f"capacity {MEMORY}", "'-1' is no whole number"),
        ({"core": "25700"}, f"capacity {CORE}", "257 GPUs are told, at most 256 are read"),
    ],
)
def test_a_capacity_that_makes_no_sense_is_told(capacity: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(PublicationUnreadable) as caught:
        read(None, **capacity)
    assert caught.value.key == key
    assert caught.value.reason.startswith(reason)


def test_our_own_word_comes_first() -> None:
    """It says more than the capacity that the same agent advertises."""
    gpus = tuple(PublishedGpu(uuid=gpu_uuid(index), index=index) for index in range(6))
    published = Published(profile="hami", space=account(six()), gpus=gpus)
    annotations = {ANNOTATION: render_published(published), REGISTERED: "[]"}
    assert read(annotations, core="100", memory="8") == published


def test_registered_gpus_come_in_the_order_of_their_indexes() -> None:
    """With their model, and withheld while they are unhealthy."""
    text = json.dumps([register(index=1, id=gpu_uuid(1), health=False, numa=1), register()])
    found = read({REGISTERED: text})
    assert found is not None
    assert found.space.rooms == (
        GpuRoom(gpu=gpu_uuid(0), index=0, memory_bytes=1 << 30, users_max=10),
        GpuRoom(
            gpu=gpu_uuid(1),
            index=1,
            memory_bytes=1 << 30,
            users_max=10,
            withheld="its device plugin calls it unhealthy",
        ),
    )
    wanted = PublishedGpu(uuid=gpu_uuid(1), index=1, model="NVIDIA-T4", numa_node=1, held="unhealthy")
    assert found.gpus == (PublishedGpu(uuid=gpu_uuid(0), index=0, model="NVIDIA-T4", numa_node=0), wanted)
    assert (found.profile, found.has_uuids) == ("hami", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("GPU-1,10,16276,100,NVIDIA:", "malformed"),
        ("[{}]", "missing required field `id`"),
        (json.dumps([register(), register()]), "it has a GPU twice"),
        (json.dumps([register(id=f"GPU-{number}") for number in range(257)]), "or more than 256"),
        (json.dumps([register(devmem=-1)]), "a number in it is below zero"),
        ('[{"custom":' + "[" * 100000, "ecursion"),
    ],
)
def test_a_registration_that_makes_no_sense_is_told(text: str, reason: str) -> None:
    with pytest.raises(PublicationUnreadable) as caught:
        read({REGISTERED: text})
    assert caught.value.key == REGISTERED
    assert reason in caught.value.reason
