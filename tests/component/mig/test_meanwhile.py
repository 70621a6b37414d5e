"""What is asked for, or chosen, while the GPUs of a layout are cut: the rest of them is judged anew."""

import pytest

from nodeagent.model.gpu import Inventory
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Door, GpuDoor, Offering
from tests.component.mig.harness import SEVEN, WHOLE, World
from tests.component.mig.test_making_way import meet
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


def is_cutting(state: MigState) -> bool:
    """The first GPU is in the middle of its calls."""
    return any(one.index == 0 and one.doing.startswith("create") for one in state.changes)


def choose(world: World, inventory: Inventory, **doors: Door) -> None:
    """These GPUs go by these doors, the others are whole."""
    chosen = [doors.get(f"gpu{gpu.index}", Door.WHOLE) for gpu in inventory.gpus]
    offering = Offering(
        doors=tuple(
            GpuDoor(
                gpu=gpu.uuid,
                index=gpu.index,
                address=gpu.pci.address,
                door=door,
                wanted=door,
                reason="a person",
                is_open=True,
            )
            for gpu, door in zip(inventory.gpus, chosen, strict=True)
        )
    )
    world.bus.publish_state(offering, source="offering")


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


async def test_a_gpu_that_others_look_after_by_now_is_not_cut(clock: FakeClock) -> None:
    """Its door was chosen while another GPU was waited for."""
    world = World(clock)
    async with world.running():
        inventory = await world.look()
        choose(world, inventory)
        world.hold(inventory.gpus[0].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        choose(world, inventory, gpu1=Door.FRACTIONS)
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
        await world.relay.apply_layout("all-balanced", "me")
        state = await world.until_standing("success")
        assert (state.layout, state.origin) == ("all-balanced", "me")
