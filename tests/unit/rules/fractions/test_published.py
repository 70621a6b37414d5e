"""What a node publishes is what the extender reads, and what makes no sense is told."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.gpu import Inventory
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile, find_class, name_profile
from nodeagent.rules.fractions.published import (
    FORM,
    Published,
    PublishedGpu,
    plan_published,
    read_published,
    render_published,
)
from nodeagent.rules.placement.space import plan_space
from tests.support.gpus import MODEL, gpu_uuid, make_gpu, make_inventory, make_node
from tests.support.placement import BLOCK, WHOLE, account, eight, make_sized, six


def publish(inventory: Inventory, **differences: object) -> Published:
    space = plan_space(inventory, BLOCK, withheld={}, users_max=10)
    rooms = (replace(space.rooms[0], **differences), *space.rooms[1:]) if space.rooms else ()
    gpus = tuple(PublishedGpu(uuid=gpu.uuid, index=gpu.index, model=gpu.name, numa_node=1) for gpu in inventory.gpus)
    return Published(profile="tencent", space=replace(space, rooms=rooms), gpus=gpus)


@pytest.mark.parametrize(
    "published",
    [
        publish(six()),
        publish(eight()),
        publish(make_node(8)),
        publish(make_inventory(make_sized(1))),
        publish(make_inventory([])),
        publish(eight(), withheld="it is lost"),
        publish(eight(), foreign=True, foreign_bytes=3 << 30),
        publish(eight(), users_max=None),
        replace(publish(eight()), enforcement="advise"),
        plan_published(
            CoresProfile(),
            publish(eight(), withheld="it is lost").space,
            eight().gpus,
            "mps",
            has_mps=True,
            held={gpu_uuid(0): "unhealthy"},
        ),
    ],
    ids=lambda published: f"{len(published.gpus)} GPUs",
)
def test_what_is_written_is_read(published: Published) -> None:
    """The account with its tree, and the models."""
    assert read_published(render_published(published)) == published


def test_models_are_found_by_gpu() -> None:
    assert publish(six()).models == {gpu_uuid(index): MODEL for index in range(6)}


def test_a_profile_has_a_word() -> None:
    """The one that the configuration uses."""
    names = [name_profile(each) for each in (CoresProfile(), CountedProfile(), CoresProfile(device_class="a.com/b"))]
    assert names == ["tencent", "hami", "a.com/b"]
    assert [find_class(each) for each in names] == ["", "", "a.com/b"]


def change(**differences: object) -> str:
    document = json.loads(render_published(publish(eight())))
    return json.dumps(document | differences)


def change_gpu(number: int = 0, **differences: object) -> str:
    document: dict[str, Any] = json.loads(render_published(publish(eight())))
    document["gpus"][number] |= differences
    return json.dumps(document)


def nest(depth: int) -> object:
    tree: object = 0
    for _ in range(depth):
        tree = [1, tree, 1]
    return tree


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "truncated"),
        ("{}", "missing required field"),
        ('{"tree":' + "[" * 60000, "ecursion"),
        ("x" * 65537, "it has 65537 characters, at most 65536 are read"),
        (change(form=FORM + 1), "it has form 2, this version reads form 1; bring node and extender to the same"),
        (change(form=FORM + 1, news=1), "it has form 2, this version reads form 1"),
        (change(news=1), "unknown field `news`"),
        (change(block=0), "a block of 0 bytes is none"),
        (change(profile="other"), "Invalid enum value 'other'"),
        (change_gpu(memory=-1), "has a number below zero"),
        (change_gpu(shares=-1), "has a number below zero"),
        (change_gpu(clients=-1), "has a number below zero"),
        (change(enforcement="prayer"), "Invalid enum value 'prayer'"),
        (change_gpu(1, uuid=gpu_uuid(0)), "it has a GPU twice"),
        (change_gpu(1, index=0), "it has a GPU twice"),
        (change_gpu(0, index=99), "its GPUs are not in the order of their indexes"),
        (change(tree=None), "its tree is neither a position nor a score with branches"),
        (change(tree=True), "its tree is neither"),
        (change(tree=[1, 0]), "its tree is neither"),
        (change(tree=["1", 0, 1]), "its tree is neither"),
        (change(tree=[True, 0, 1]), "its tree is neither"),
        (change(tree=nest(40)), "its tree is neither"),
        (change(tree=[1, 0, 1, 2]), "its tree does not have each GPU once"),
        (change(tree=[1, 0, 1, 2, 3, 4, 5, 6, 6]), "its tree does not have each GPU once"),
        (
            change(gpus=[{"uuid": f"GPU-{index}", "index": index, "memory": 1} for index in range(257)]),
            "it has 257 GPUs, at most 256 are read",
        ),
    ],
)
def test_what_makes_no_sense_is_told_by_its_key(text: str, reason: str) -> None:
    """Nothing is read of it: half an account would be a wrong one."""
    with pytest.raises(PublicationUnreadable) as caught:
        read_published(text)
    assert caught.value.key == "nvidia.com/gpu-fractions"
    assert reason in caught.value.reason


def test_what_was_given_is_left_out_and_what_others_use_is_told() -> None:
    """Pods say themselves what they have; of programs that were given nothing no pod tells."""
    inventory = eight()
    space = account(inventory, {0: WHOLE, 1: (30, 4)})
    busy = replace(space.rooms[2], foreign=True, foreign_bytes=1 << 30, processes=3)
    space = replace(space, rooms=(*space.rooms[:2], busy, *space.rooms[3:]))
    published = plan_published(CoresProfile(), space, inventory.gpus, "library", has_mps=False)
    rooms = published.space.rooms
    assert [room.users for room in rooms] == [0] * 8
    assert (rooms[2].foreign, rooms[2].foreign_bytes, rooms[2].processes) == (True, 1 << 30, 0)
    assert published.models == {gpu_uuid(index): MODEL for index in range(8)}
    assert read_published(render_published(published)) == published


def test_what_holds_containers_is_told_and_how_many_by_mps() -> None:
    """Where somebody looks after daemons; a GPU that came before Volta holds nobody so."""
    gpus = (replace(make_gpu(0), compute_capability=(6, 1)), make_gpu(1))
    inventory = make_inventory(gpus)
    space = plan_space(inventory, BLOCK, withheld={})
    with_daemons = plan_published(CoresProfile(), space, inventory.gpus, "library", has_mps=True)
    assert (with_daemons.enforcement, with_daemons.has_mps) == ("library", True)
    assert [gpu.mps_clients for gpu in with_daemons.gpus] == [0, 48]
    without = plan_published(CoresProfile(), space, inventory.gpus, "library", has_mps=False)
    assert (without.has_mps, read_published(render_published(without)).has_mps) == (False, False)


def test_an_annotation_of_a_node_that_did_not_tell_is_read() -> None:
    """Nodes and extender are not brought to a new version at once."""
    document = json.loads(render_published(publish(eight())))
    del document["enforcement"]
    found = read_published(json.dumps(document))
    assert (found.enforcement, found.has_mps) == (None, False)
    assert found == publish(eight())
