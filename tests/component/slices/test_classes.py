"""The condition on a resource that comes by two ways, as classes, device plugin and slices change."""

from collections.abc import Sequence

import anyio
import pytest

from nodeagent.components.slices.classes_task import CODE, RETRY
from nodeagent.model.plugin import AdvertisedResource, PluginState
from nodeagent.model.slices import DeviceClass
from tests.component.slices.harness import LOST, World
from tests.fakes.slices import SliceRefused
from tests.unit.components.slices.test_doubled import GPU, offer

pytestmark = pytest.mark.virtual_time


def tell(world: World, resources: Sequence[AdvertisedResource]) -> None:
    world.bus.publish_state(PluginState(resources=tuple(resources)), source="deviceplugin")


def doubled(world: World) -> list[str]:
    return [one.key for one in world.conditions.all_set() if one.code == CODE]


async def test_a_doubled_resource_is_told_for_as_long_as_it_is_one() -> None:
    """Whatever ends it: the class has the name no more, or the device plugin does not offer it any more."""
    async with World().published() as world:
        tell(world, [offer()])
        await world.settle()
        assert doubled(world) == []
        world.classes.put(GPU)
        await world.settle()
        assert doubled(world) == ["nvidia.com/gpu"]
        tell(world, [])
        await world.settle()
        assert doubled(world) == []
        tell(world, [offer()])
        await world.settle()
        assert doubled(world) == ["nvidia.com/gpu"]
        world.classes.put(DeviceClass(name=GPU.name, selectors=GPU.selectors))
        await world.settle()
        assert (doubled(world), world.classes.lists) == ([], 1)


async def test_a_watch_that_is_refused_holds_up_no_slice_and_is_tried_again() -> None:
    """What was known stays known until then: a class is not gone because nobody can read it."""
    async with World().published() as world:
        tell(world, [offer()])
        world.classes.put(GPU)
        await world.settle()
        world.classes.fail(SliceRefused("not now"))
        await world.settle()
        world.tell({world.gpus[0].uuid: [LOST]})
        await world.settle()
        assert (world.api.writes, doubled(world)) == (["update 0000"], ["nvidia.com/gpu"])
        world.classes.trouble = None
        world.classes.put()
        await anyio.sleep(RETRY.limit_seconds)
        assert doubled(world) == []
        assert world.classes.lists > 1
