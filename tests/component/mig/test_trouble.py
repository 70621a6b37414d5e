"""Changes that fail, are killed or cannot go on: what is brought back, what is told, and what is left to a boot."""

import anyio
import pytest

from nodeagent.components.mig.request import TRIES
from nodeagent.model.events import NodeRequestRefused
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Step
from nodeagent.model.mig import Write, WriteKind
from nodeagent.rules.mig.change import Intent, begin_step
from tests.component.mig.harness import BALANCED, SEVEN, WHOLE, World
from tests.support.mig import partitions_of, request
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("kind", ["mode-on", "create", "create-compute"])
async def test_a_gpu_that_fails_is_brought_back(clock: FakeClock, kind: str) -> None:
    """To what it was; those before it keep what they have, those behind it are not begun."""
    world = World(clock)
    async with world.running():
        world.ask("all-disabled")
        await world.until_standing("success")
        await world.gpus.inject("mig-refuse", [kind])
        world.ask("all-balanced")
        state = await world.until_standing("failed")
        assert state.detail.startswith("GPU 0: cannot ")
        assert await world.profiles() == [WHOLE] * 8
        assert world.book.ended == ["undone"]
        assert world.codes() == {"mig-change-failed"}
        await anyio.sleep(100)
        assert world.state.standing == "failed"
        world.ask("all-1g.10gb")
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8


async def test_a_gpu_that_cannot_be_brought_back_is_told_as_half_way(clock: FakeClock) -> None:
    """With what to do; a layout that can be had later mends it."""
    world = World(clock)
    async with world.running():
        await world.gpus.inject("mig-refuse", ["create-compute"])
        await world.gpus.inject("mig-refuse", ["destroy"])
        world.ask("all-balanced")
        state = await world.until_standing("failed")
        assert "then, on the way back: cannot destroy" in state.detail
        assert world.codes() == {"mig-change-failed", "mig-half-way"}
        world.ask("all-1g.10gb")
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8
        assert not world.codes()


async def test_a_journal_that_cannot_be_written_lets_nothing_begin(clock: FakeClock) -> None:
    """What is not written down is not done."""
    world = World(clock)
    world.book.breaks_after = 0
    async with world.running():
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert "no space left on device" in state.detail
        assert await world.profiles() == [WHOLE] * 8


async def test_a_journal_that_breaks_before_the_first_call_undoes_nothing(clock: FakeClock) -> None:
    """There is nothing to undo."""
    world = World(clock)
    world.book.breaks_after = 1
    async with world.running():
        world.ask("all-1g.10gb")
        await world.until_standing("failed")
        assert world.book.ended == ["undone"]
        assert await world.profiles() == [WHOLE] * 8


async def be_killed(world: World, step: int) -> None:
    """In the middle of cutting, at this step."""
    world.book.kill_at = step
    async with world.running():
        world.ask("all-1g.10gb")
        await anyio.sleep_forever()


@pytest.mark.parametrize("step", range(1, 17))
async def test_whoever_is_killed_goes_on_where_it_was(clock: FakeClock, step: int) -> None:
    """At any step: the next life of the agent reads the GPU, and ends in the layout that was asked for."""
    world = World(clock)
    await be_killed(world, step)
    assert len(world.book.under_way) == 1
    async with world.running():
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8
        assert world.book.ended == ["done"] * 8


@pytest.mark.parametrize("step", range(2, 5))
async def test_what_was_begun_waits_for_a_gpu_that_is_not_there(clock: FakeClock, step: int) -> None:
    """It goes on when that comes, and not again when another does."""
    world = World(clock)
    await be_killed(world, step)
    (change,) = world.book.under_way.values()
    begun = next(gpu.index for gpu in (await world.gpus.read_inventory()).gpus if gpu.uuid == change.gpu)
    world.hidden = {begun, 5}
    async with world.running():
        await world.until_standing("success")
        assert world.codes() == {"mig-half-way"}
        world.hidden = {begun}
        await world.look()
        await anyio.sleep(60)
        assert world.book.under_way == {change.number: change}
        world.hidden = set()
        await world.look()
        await anyio.sleep(60)
        assert (world.book.under_way, world.codes()) == ({}, set())
        assert await world.profiles() == [SEVEN] * 8
        assert world.book.ended == ["done"] * 8


async def test_ampere_is_reset_for_its_mode(clock: FakeClock) -> None:
    """One GPU after the other."""
    world = World(clock, "a100-40gb")
    async with world.running():
        world.ask("all-balanced")
        await world.until_standing("success")
        assert await world.profiles() == [["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]] * 2


async def test_a_reset_that_this_machine_does_not_do_is_left_to_its_boot(clock: FakeClock) -> None:
    """The mode stays set for it, and the layout is there after it; a boot that does not help is not asked for twice."""
    world = World(clock, "a100-40gb")
    world.store.boot = "boot-1"
    await world.gpus.inject("mig-refuse", ["reset", "99"])
    async with world.running():
        world.ask("all-enabled")
        state = await world.until_standing("rebooting")
        assert "cannot reset the GPU" in state.detail
        assert "mig-reboot-needed" in world.codes()
        assert world.book.ended == ["reboot"] * 2
        assert (await world.look()).gpus[0].mig.pending  # type: ignore[union-attr]
    async with world.running():
        world.ask("all-enabled")
        await world.until_standing("rebooting")
    world.store.boot = "boot-2"
    async with world.running():
        world.ask("all-enabled")
        state = await world.until_standing("failed")
        assert state.detail.endswith("nor did a boot of the node")
        await world.gpus.inject("mig-refuse", ["none"])
        await world.apply("")
        await world.until_standing("success")
        assert not world.codes()


async def test_one_boot_is_enough_for_all_gpus(clock: FakeClock) -> None:
    """It finds the mode of each of them set."""
    world = World(clock, "a100-40gb")
    await world.gpus.inject("mig-refuse", ["reset", "99"])
    async with world.running():
        world.ask("all-enabled")
        state = await world.until_standing("rebooting")
        assert state.detail.count("cannot reset the GPU") == 2
        assert [gpu.mig.pending for gpu in (await world.look()).gpus if gpu.mig is not None] == [True, True]


@pytest.mark.parametrize("helps", [True, False])
async def test_a_boot_is_in_vain_only_for_a_gpu_that_was_there(clock: FakeClock, helps: bool) -> None:
    """One that comes after it has its own."""
    world = World(clock, "a100-40gb")
    world.store.boot, world.hidden = "boot-1", {1}
    await world.gpus.inject("mig-refuse", ["reset", "99"])
    async with world.running():
        world.ask("all-enabled")
        await world.until_standing("rebooting")
    if helps:
        await boot(world, WriteKind.MODE_ON, 0)
    world.store.boot, world.hidden = "boot-2", set()
    async with world.running():
        state = await world.until(lambda state: state.standing in {"rebooting", "failed"})
        assert state.standing == ("rebooting" if helps else "failed")
        assert state.detail.startswith(f"GPU {int(helps)}: ")


async def boot(world: World, mode: WriteKind, *indexes: int) -> None:
    """The mode is set and in force, and this driver goes on refusing resets."""
    await world.gpus.inject("mig-refuse", ["none"])
    async with world.gpus.begin() as session:
        for gpu in (await world.look()).gpus:
            for kind in (mode, WriteKind.RESET) if gpu.index in indexes or not indexes else ():
                await session.write(gpu, Write(kind=kind))
    await world.gpus.inject("mig-refuse", ["reset", "99"])


async def test_a_boot_that_helped_is_forgotten(clock: FakeClock) -> None:
    """Where the same layout needs one again some day, it is not said that none helps."""
    world = World(clock, "a100-40gb")
    world.store.boot = "boot-1"
    await world.gpus.inject("mig-refuse", ["reset", "99"])
    async with world.running():
        world.ask("all-enabled")
        await world.until_standing("rebooting")
    await boot(world, WriteKind.MODE_ON)
    world.store.boot = "boot-2"
    async with world.running():
        await world.until_standing("success")
        assert world.book.ended == ["reboot"] * 2
    await boot(world, WriteKind.MODE_OFF)
    world.store.boot = "boot-3"
    async with world.running():
        state = await world.until(lambda state: state.standing in {"rebooting", "failed"})
        assert (state.standing, state.layout) == ("rebooting", "all-enabled")


async def test_a_change_that_cannot_be_resumed_is_told(clock: FakeClock) -> None:
    """One of a later version, one of a GPU that is gone; others go on."""
    world = World(clock)
    gpu, gone = (await world.gpus.read_inventory()).gpus[0].uuid, GpuUuid("GPU-gone")
    await world.book.begin_change("mig", gpu, Step(name="x", at_seconds=0.0))
    before = partitions_of("h100-sxm5-80gb", enabled=False)
    await world.book.begin_change(
        "mig", gone, begin_step(Intent(layout="x", wanted=request("1g.10gb"), before=before), 0.0)
    )
    async with world.running():
        assert world.codes() == {"mig-half-way"}
        told = sorted(one.detail for one in world.conditions.all_set())
        assert told[0] == "GPU-gone is not on this node any more"
        assert told[1].startswith(f"change 1 of {gpu} cannot be read")
        world.ask("all-enabled")
        await world.until_standing("success")
        assert world.book.ended == ["outdone"] + ["done"] * 8
        assert [change.gpu for change in world.book.under_way.values()] == [gone]


async def test_a_change_that_could_not_be_settled_is_not_gone_on_with_after_another(clock: FakeClock) -> None:
    """Pods have what the later one has made."""
    world = World(clock)
    async with world.running():
        world.book.settles = False
        world.ask("all-1g.10gb")
        await world.until_standing("failed")
        assert (await world.profiles())[0] == SEVEN
        world.book.settles = True
        world.ask("all-balanced")
        await world.until_standing("success")
        given = (await world.look()).gpus[0].mig_devices
        world.hold(*(device.uuid for device in given))
    async with world.running():
        await anyio.sleep(100)
        assert (await world.look()).gpus[0].mig_devices == given
        assert world.book.ended == ["outdone"] + ["done"] * 8


async def test_a_change_that_another_has_outdone_is_not_gone_on_with_when_its_gpu_comes(clock: FakeClock) -> None:
    """It could not be finished at the start, and waits for that."""
    world = World(clock)
    await be_killed(world, 2)
    world.book.settles = False
    async with world.running():
        await world.until(lambda _: "mig-half-way" in world.codes())
        world.book.settles = True
        world.ask("all-balanced")
        await world.until_standing("success")
        await world.gpus.inject("lost", ["0"])
        await world.look()
        await world.gpus.inject("back", ["0"])
        await world.look()
        await anyio.sleep(100)
        assert world.book.ended == ["outdone"] + ["done"] * 8
        assert (await world.profiles(), world.codes()) == ([BALANCED] * 8, set())


async def test_nothing_is_begun_before_the_journal_is_known(clock: FakeClock) -> None:
    """It may hold a change that is half done."""
    world = World(clock, layout="all-enabled")
    world.book.is_known = False
    async with world.running():
        await anyio.sleep(30)
        assert world.state.layout == ""
        world.book.is_known = True
        await world.until_standing("success")


async def test_a_gpu_that_goes_in_between_ends_the_change(clock: FakeClock) -> None:
    """Of those behind it nothing is begun."""
    world = World(clock)
    async with world.running():
        gpus = (await world.look()).gpus
        world.hold(gpus[0].uuid)
        world.ask("all-enabled")
        await world.until(lambda state: bool(state.changes))
        await world.gpus.inject("unplug", ["1"])
        await world.look()
        world.hold()
        state = await world.until_standing("failed")
        assert state.detail == f"{gpus[1].uuid} is not on this node any more"
        assert world.book.ended == ["done"]


async def test_a_session_that_cannot_go_on_is_told_as_half_way(clock: FakeClock) -> None:
    """Whoever is killed in between, and finds a journal that cannot be written."""
    world = World(clock)
    world.book.kill_at = 4
    async with world.running():
        world.ask("all-balanced")
        await anyio.sleep_forever()
    world.book.settles = False
    async with world.running():
        await world.until(lambda state: "mig-half-way" in world.codes())


async def test_a_driver_that_hangs_leaves_the_gpu_as_it_was(clock: FakeClock) -> None:
    """Nothing was begun before it could be read."""
    world = World(clock)
    async with world.running():
        await world.gpus.inject("hang", ["partition"])
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert "did not come back" in state.detail
        assert world.book.ended == []


async def test_a_layout_that_is_refused_for_a_lost_gpu_is_applied_when_that_is_back(clock: FakeClock) -> None:
    """A moment after it has come; label and condition go by themselves, and it was told once that it was refused."""
    world = World(clock)
    async with world.running():
        for lost in ("1", "3"):
            await world.gpus.inject("lost", [lost])
        await world.look()
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert "GPU 1 (NVIDIA H100 80GB HBM3) is lost" in state.detail
        await anyio.sleep(1000)
        assert world.book.ended == []
        await world.gpus.inject("back", ["1"])
        await world.look()
        await anyio.sleep(1000)
        assert (world.state.standing, world.book.ended) == ("failed", [])
        assert "GPU 1 " not in world.state.detail
        await world.gpus.inject("back", ["3"])
        await world.look()
        await anyio.sleep(4)
        assert world.state.standing == "failed"
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8
        assert not world.codes()
        assert [fact.reason.count("is lost") for fact in world.facts(NodeRequestRefused)] == [2, 1]


async def test_what_is_still_refused_when_a_gpu_has_come_is_not_told_again(clock: FakeClock) -> None:
    """Here the one that is lost is another."""
    world = World(clock)
    world.hidden = {7}
    async with world.running():
        await world.gpus.inject("lost", ["3"])
        await world.look()
        world.ask("all-1g.10gb")
        await world.until_standing("failed")
        world.hidden = set()
        await world.look()
        await anyio.sleep(100)
        assert len(world.facts(NodeRequestRefused)) == 1
        assert world.state.standing == "failed"


async def test_a_layout_that_failed_at_a_gpu_is_tried_again_when_that_comes_back(clock: FakeClock) -> None:
    """When another one comes it is not: what failed is not mended by that."""
    world = World(clock)
    async with world.running():
        await world.gpus.inject("mig-refuse", ["mode-on"])
        world.ask("all-1g.10gb")
        await world.until_standing("failed")
        for index, standing in (("5", "failed"), ("0", "success")):
            await world.gpus.inject("lost", [index])
            await world.look()
            await world.gpus.inject("back", [index])
            await world.look()
            await anyio.sleep(100)
            assert world.state.standing == standing
        assert await world.profiles() == [SEVEN] * 8
        assert not world.codes()


async def test_a_gpu_that_comes_and_goes_is_not_cut_for_ever(clock: FakeClock) -> None:
    """Each time it is left alone for longer, and after some tries until somebody asks again."""
    world = World(clock)
    async with world.running():
        await world.gpus.inject("mig-refuse", ["create", "99"])
        world.ask("all-1g.10gb")
        await world.until_standing("failed")
        for _ in range(20):
            await world.gpus.inject("lost", ["0"])
            await world.look()
            await world.gpus.inject("back", ["0"])
            await world.look()
            await anyio.sleep(400)
        assert world.book.ended == ["undone"] * TRIES
        await world.gpus.inject("mig-refuse", ["none"])
        await world.apply("")
        await world.until_standing("success")
