"""The budgets that are in an upgrade's way, known before anybody is asked to leave."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.upgrades.leaving_task import PATIENCE_SECONDS
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import Eviction
from nodeagent.model.drains import EvictionAnswer
from nodeagent.model.orders import REHEARSE_UPGRADE, NoArguments
from tests.component.upgrades.world import BY_COMMAND, HELD, Host, World
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

OBSERVING = replace(BY_COMMAND, upgrade="observe")
KEPT = EvictionAnswer(eviction=Eviction.BLOCKED, detail="the budget train needs 1 healthy pods and has 1 currently")


def make_observing(clock: FakeClock, *, has_cluster: bool = True) -> World:
    """An agent that only observes, and a pod."""
    world = World(clock, Host(), OBSERVING, has_cluster=has_cluster)
    world.bus.publish_state(HELD, source="test")
    world.pods.answer = KEPT
    return world


async def rehearse(world: World) -> str:
    return await world.orders.give(REHEARSE_UPGRADE, NoArguments())


async def test_a_budget_is_named_to_whoever_asks_and_no_pod_is_asked_to_leave(clock: FakeClock) -> None:
    """Nobody's question is no request; the answer is of the pods that were there."""
    async with make_observing(clock).running() as world:
        await anyio.sleep(3600)
        assert (list(world.state.budgets), world.pods.rehearsed) == ([], [])
        assert await rehearse(world) == f"team/train: {KEPT.detail}"
        assert list(world.state.budgets) == [f"team/train: {KEPT.detail}"]
        world.bus.publish_state(AllocationTable(), source="test")
        await anyio.sleep(1)
        assert (list(world.state.pods), list(world.state.budgets)) == ([], [])
        world.bus.publish_state(HELD, source="test")
        world.pods.answer = EvictionAnswer(eviction=Eviction.ASKED)
        assert await rehearse(world) == "no budget keeps any of 1 pods"
        assert (world.pods.rehearsed, world.pods.asked) == (["train"] * 2, [])


async def test_without_an_answer_the_plan_says_so(clock: FakeClock) -> None:
    async with make_observing(clock).running() as world:
        world.pods.error = "no rights"
        assert await rehearse(world) == "the budgets are not known: no rights"
        assert list(world.state.budgets) == ["the budgets are not known: no rights"]
        world.pods.error, world.pods.is_silent = "", True
        assert f"did not answer within {PATIENCE_SECONDS:g} s" in await rehearse(world)


async def test_without_an_api_server_nobody_is_asked(clock: FakeClock) -> None:
    async with make_observing(clock, has_cluster=False).running() as world:
        assert await rehearse(world) == "there is no API server that could be asked about budgets"
