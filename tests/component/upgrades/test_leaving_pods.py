"""The budgets that are in an upgrade's way, known before anybody is asked to leave."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.upgrades.leaving_task import ASK_AGAIN_SECONDS, PATIENCE_SECONDS
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import EvictionAnswer
from tests.component.upgrades.world import BY_COMMAND, HELD, Host, World
from tests.support.repairs import OLD
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

OBSERVING = replace(BY_COMMAND, upgrade="observe")
KEPT = EvictionAnswer(eviction=Eviction.BLOCKED, detail="the budget train needs 1 healthy pods and has 1 currently")


def make_observing(clock: FakeClock) -> World:
    """An agent that only observes, and a pod."""
    world = World(clock, Host(), OBSERVING)
    world.bus.publish_state(HELD, source="test")
    world.pods.answer = KEPT
    return world


async def test_a_budget_is_named_before_anybody_is_asked_to_leave(clock: FakeClock) -> None:
    """Once a minute, and at once when other pods have GPUs."""
    async with make_observing(clock).running() as world:
        await anyio.sleep(1)
        assert list(world.state.budgets) == [f"team/train: {KEPT.detail}"]
        await anyio.sleep(2 * ASK_AGAIN_SECONDS)
        assert world.pods.rehearsed == ["train"] * 3
        world.pods.answer = EvictionAnswer(eviction=Eviction.ASKED)
        await anyio.sleep(ASK_AGAIN_SECONDS)
        assert list(world.state.budgets) == []
        world.bus.publish_state(AllocationTable(), source="test")
        await anyio.sleep(ASK_AGAIN_SECONDS)
        assert (world.state.pods, world.pods.rehearsed, world.pods.asked) == ((), ["train"] * 4, [])


async def test_without_an_answer_the_plan_says_so(clock: FakeClock) -> None:
    async with make_observing(clock).running() as world:
        world.pods.error = "no rights"
        await anyio.sleep(ASK_AGAIN_SECONDS + 1)
        assert list(world.state.budgets) == ["the budgets are not known: no rights"]
        world.pods.error, world.pods.is_silent = "", True
        await anyio.sleep(ASK_AGAIN_SECONDS + PATIENCE_SECONDS)
        assert "did not answer within 20 s" in world.state.budgets[0]


async def test_nobody_asks_without_an_api_server_or_a_driver_that_is_due(clock: FakeClock) -> None:
    for settings, has_cluster in ((OBSERVING, False), (replace(OBSERVING, wanted_version=OLD), True)):
        world = World(clock, Host(), settings, has_cluster=has_cluster)
        world.bus.publish_state(HELD, source="test")
        async with world.running():
            await anyio.sleep(ASK_AGAIN_SECONDS)
            assert (world.state.pods, world.state.budgets, world.pods.rehearsed) == (("team/train",), (), [])
