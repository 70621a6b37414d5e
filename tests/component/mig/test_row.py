"""A GPU that somebody has holds up nobody but itself, and what is in line is given to nobody new."""

import anyio
import pytest

from nodeagent.model.cluster import Eviction
from nodeagent.model.mig import MigState
from tests.component.mig.harness import SEVEN, WHOLE, World
from tests.component.mig.test_making_way import meet
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


def is_waiting(state: MigState) -> bool:
    """Somebody has a GPU that is to change, and all others are done."""
    return bool(state.changes) and all("waits for" in one.doing for one in state.changes)


async def test_whichever_gpu_is_free_first_is_cut_first(clock: FakeClock) -> None:
    """Also the last of them; a restart in between begins nothing anew."""
    world = World(clock)
    uuids: list[str] = []
    async with world.running():
        uuids += [gpu.uuid for gpu in (await world.look()).gpus]
        world.hold(*(uuids[index] for index in (0, 3, 7)))
        world.ask("all-1g.10gb")
        state = await world.until(is_waiting)
        assert [change.index for change in state.changes] == [0, 3, 7]
        assert len(world.book.ended) == 5
    async with world.running():
        await world.until(is_waiting)
        world.hold(uuids[0], uuids[3])
        state = await world.until(lambda state: len(state.changes) == 2 and is_waiting(state))
        assert await world.profiles() == [WHOLE, SEVEN, SEVEN, WHOLE, *[SEVEN] * 4]
        world.hold()
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8
        assert world.book.ended == ["done"] * 8
        assert not world.codes()


async def test_what_is_in_line_is_hidden_before_the_first_gpu_changes(clock: FakeClock) -> None:
    """The kubelet is told of all of them first: else a pod could be given one whose turn comes in a moment."""
    world = World(clock)
    async with world.running():
        uuids = [gpu.uuid for gpu in (await world.look()).gpus]
        world.advertise(*uuids)
        world.ask("all-1g.10gb")
        state = await world.until(lambda state: len(state.changes) == 8)
        assert all(state.explain_hidden(uuid, uuid) for uuid in uuids)
        await anyio.sleep(1)
        assert await world.profiles() == [WHOLE] * 8
        world.advertise()
        await world.until_standing("success")


async def test_whoever_is_asked_to_go_is_not_asked_at_each_news(clock: FakeClock) -> None:
    """Other GPUs are cut meanwhile, which is news each time; five seconds later it is asked again."""
    world = World(clock, when_busy="evict")
    cluster = meet(world)
    cluster.answers = [Eviction.BLOCKED] * 2
    async with world.running():
        world.hold((await world.look()).gpus[0].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: len(state.changes) == 1 and len(world.book.ended) == 7)
        assert len(cluster.asked) == 1
        await world.until_standing("success")
        assert len(cluster.asked) == 3


async def test_a_failure_ends_the_line(clock: FakeClock) -> None:
    """Whoever is waited for is waited for no longer, and what did not change is offered again."""
    world = World(clock)
    async with world.running():
        gpus = (await world.look()).gpus
        world.hold(gpus[0].uuid)
        await world.gpus.inject("mig-refuse", ["create"])
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert state.detail.startswith("GPU 1: cannot create")
        assert state.explain_hidden(gpus[0].uuid, gpus[0].uuid) == ""
        assert world.codes() == {"mig-change-failed"}
        assert await world.profiles() == [WHOLE] * 8
