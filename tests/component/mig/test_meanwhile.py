"""What is asked for, or chosen, while the GPUs of a layout are cut: the rest of them is judged anew."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import MigState
from nodeagent.model.offering import AllocationMode, Offering
from tests.component.mig.harness import SEVEN, WHOLE, World
from tests.component.mig.test_making_way import meet
from tests.support.slices import make_doors
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


def is_cutting(state: MigState) -> bool:
    """The first GPU is in the middle of its calls."""
    return any(one.index == 0 and one.doing.startswith("create") for one in state.changes)


def choose(world: World, gpus: Sequence[Gpu], *shared: int) -> None:
    """These GPUs are given in parts, the others are whole."""
    parted = make_doors([gpu for gpu in gpus if gpu.index in shared], AllocationMode.FRACTIONS)
    whole = make_doors([gpu for gpu in gpus if gpu.index not in shared], AllocationMode.WHOLE)
    world.bus.publish_state(Offering(doors=parted.doors + whole.doors), source="offering")


async def test_a_layout_that_nobody_asks_for_any_more_cuts_no_further_gpu(clock: FakeClock) -> None:
    """The one that is being cut is finished; no pod is evicted from those behind it."""
    world = World(clock, when_busy="evict")
    cluster = meet(world)
    async with world.running():
        world.hold((await world.look()).gpus[1].uuid)
        world.ask("all-1g.10gb")
        await world.until(is_cutting)
        world.ask("all-disabled")
        await world.until(lambda state: (state.layout, state.standing) == ("all-disabled", "success"))
        assert await world.profiles() == [WHOLE] * 8
        assert world.book.ended == ["done"] * 2
        assert not cluster.asked


async def test_what_is_in_line_stays_hidden_while_it_is_judged_anew(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod is given none of them between two layouts; what the second one leaves as it is is offered again."""
    world = World(clock)
    async with world.running():
        uuids = [gpu.uuid for gpu in (await world.look()).gpus]
        world.hold(uuids[6], uuids[7])
        world.ask("all-1g.10gb")
        await world.until(lambda state: sum("waits" in one.doing for one in state.changes) == 2)
        seen = note_states(world, monkeypatch)
        world.ask("all-balanced")
        await world.until(lambda state: state.layout == "all-balanced" and len(state.changes) == 2)
        assert len(seen) > 2
        assert all(is_hidden(state, uuids[index]) for state in seen for index in (6, 7))
        world.ask("all-disabled")
        state = await world.until(lambda state: state.layout == "all-disabled" and not is_hidden(state, uuids[7]))
        assert not is_hidden(state, uuids[6])


def note_states(world: World, monkeypatch: pytest.MonkeyPatch) -> list[MigState]:
    """Each state that is told from now on, also one that the next takes the place of at once."""
    seen: list[MigState] = []
    publish = world.bus.publish_state

    def note(value: Any, **words: Any) -> Any:
        if isinstance(value, MigState):
            seen.append(value)
        return publish(value, **words)

    monkeypatch.setattr(world.bus, "publish_state", note)
    return seen


def is_hidden(state: MigState, uuid: GpuUuid) -> bool:
    return bool(state.explain_hidden(uuid, uuid))


async def test_a_gpu_that_others_look_after_by_now_is_not_cut(clock: FakeClock) -> None:
    """Its door was chosen while another GPU was waited for."""
    world = World(clock)
    async with world.running():
        gpus = (await world.look()).gpus
        choose(world, gpus)
        world.hold(gpus[0].uuid, gpus[1].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: sum("waits" in one.doing for one in state.changes) == 2)
        choose(world, gpus, 1)
        world.hold()
        state = await world.until_standing("success")
        assert state.detail == "GPU 1 goes through the door fractions, and is left as it is"
        assert await world.profiles() == [SEVEN, WHOLE, *[SEVEN] * 6]


async def test_a_person_outranks_what_the_label_said_before(clock: FakeClock) -> None:
    """Also where nobody has looked at that yet."""
    world = World(clock)
    async with world.running():
        world.ask("all-1g.10gb")
        await world.until(is_cutting)
        world.ask("all-enabled")
        await world.apply("all-balanced")
        state = await world.until_standing("success")
        assert (state.layout, state.origin) == ("all-balanced", "me")
