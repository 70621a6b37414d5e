"""A layout asked for is a layout in place, and nobody else is disturbed."""

from collections.abc import Mapping, Sequence

import anyio
import pytest

from nodeagent.components.mig.request import BY_LABEL
from nodeagent.config.schema import Settings
from nodeagent.config.sections.mig import LayoutEntry, MigSettings
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import ConfigurationReloaded, MigChangeEnded, NodeRequestRefused
from nodeagent.model.mig import MigState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.ports import ProcessPlace
from nodeagent.rules.mig.layouts import LayoutRule, LayoutsRead
from tests.component.mig.harness import BALANCED, SEVEN, WHOLE, World
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_a_label_has_all_gpus_cut(clock: FakeClock) -> None:
    """One after the other, while all are hidden, and what it is at each moment is told."""
    world = World(clock)
    async with world.running():
        assert world.state.standing == ""
        await world.gpus.inject("slow", ["0.1"])
        world.ask("all-1g.10gb")
        pending = await world.until(lambda state: bool(state.changes))
        assert (pending.standing, pending.origin, len(pending.changes)) == ("pending", BY_LABEL, 8)
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8
        assert world.book.ended == ["done"] * 8
        assert not world.codes()
        world.ask("all-disabled")
        await world.until(lambda state: state.layout == "all-disabled" and state.standing == "success")
        assert await world.profiles() == [WHOLE] * 8


async def test_a_gpu_that_is_right_is_not_touched(clock: FakeClock) -> None:
    """A container on it keeps running while others change; no journal, no call, no word about it."""
    world = World(clock, "a100-80gb-mig")
    async with world.running():
        before = (await world.look()).gpus
        world.hold(*(device.uuid for device in before[0].mig_devices))
        world.gpus.set_holders({before[0].mig_devices[0].uuid: "pod"})
        world.ask("all-1g.10gb")
        await world.until_standing("success")
        after = (await world.look()).gpus
        assert after[0].mig_devices == before[0].mig_devices
        assert {fact.gpu for fact in world.facts(MigChangeEnded)} == {gpu.uuid for gpu in before[1:]}


async def test_a_change_waits_for_those_who_have_what_goes(clock: FakeClock) -> None:
    """It says for whom, gives what goes to nobody new, and goes on when they are gone; the others wait for nobody."""
    world = World(clock)
    async with world.running():
        gpu = (await world.look()).gpus[0]
        world.hold(gpu.uuid)
        world.advertise(gpu.uuid)
        world.ask("all-balanced")
        state = await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        assert state.changes[0].doing == "waits for ns/train-0 (main)"
        assert "waits for ns/train-0" in state.explain_hidden(gpu.uuid, gpu.uuid)
        other = (await world.look()).gpus[1].uuid
        assert "is being cut otherwise" in state.explain_hidden(other, other)
        assert "mig-change-waits" in world.codes()
        await anyio.sleep(100)
        assert await world.profiles() == [WHOLE, *[BALANCED] * 7]
        assert ([one.index for one in world.state.changes], world.state.explain_hidden(other, other)) == ([0], "")
        world.hold()
        await world.until_standing("success")
        assert await world.profiles() == [BALANCED] * 8
        assert not world.codes()


async def test_processes_are_waited_for_too(clock: FakeClock) -> None:
    """Also those that no pod has."""
    world = World(clock)
    async with world.running():
        gpu = (await world.look()).gpus[0]
        world.gpus.set_holders({gpu.uuid: "host"})
        await anyio.sleep(5)
        world.bus.publish_state(await world.gpus.read_sample(), source="inventory")
        world.ask("all-1g.10gb")
        state = await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        assert "waits for process " in state.changes[0].doing
        world.gpus.set_holders({})
        await anyio.sleep(1)
        world.bus.publish_state(await world.gpus.read_sample(), source="inventory")
        await world.until_standing("success")


async def test_a_change_may_be_refused_instead(clock: FakeClock) -> None:
    """Where it is so configured."""
    world = World(clock, when_busy="refuse")
    async with world.running():
        world.hold((await world.look()).gpus[0].uuid)
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert state.detail == "GPU 0 is used by ns/train-0 (main), and mig.when_busy is refuse"
        assert world.codes() == {"mig-change-failed"}
        assert await world.profiles() == [WHOLE] * 8
        world.hold()
        assert await world.apply("") == "all-1g.10gb is asked for: 8 of 8 GPUs change"
        await world.until_standing("success")
        assert not world.codes()


async def test_another_wish_ends_the_waiting(clock: FakeClock) -> None:
    """What is asked for last counts; a label that is taken off asks for nothing."""
    world = World(clock)
    async with world.running():
        gpus = (await world.look()).gpus
        world.hold(gpus[0].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        world.ask("all-disabled")
        world.hold(gpus[0].uuid, gpus[1].uuid)
        await world.until_standing("success")
        assert world.state.layout == "all-disabled"
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        world.ask("")
        await world.until(lambda state: not state.layout)
        assert (world.state, await world.profiles()) == (MigState(), [WHOLE] * 8)
        assert not world.codes()


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (
            "all-1g.5gb",
            "there is no layout all-1g.5gb; did you mean all-1g.20gb or all-1g.10gb or",
        ),
        ("mine", "GPU 0 (NVIDIA H100 80GB HBM3): 4g.40gb does not fit 2 times: at most 1 of it can be on one GPU"),
        ("of-file", "there is no GPU 9 on this node, the last one is 7"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_changes(clock: FakeClock, layout: str, reason: str) -> None:
    """With the text that says what does not fit, and what would."""
    world = World(clock, layouts=(LayoutEntry(name="mine", devices={"4g.40gb": 2}),))
    world.file = LayoutsRead(layouts={"of-file": (LayoutRule(enabled=True, indexes=(9,)),)})
    async with world.running():
        world.ask(layout)
        state = await world.until_standing("failed")
        assert state.detail.startswith(reason)
        assert world.book.ended == []
        assert [(fact.value, fact.reason) for fact in world.facts(NodeRequestRefused)] == [(layout, state.detail)]
        with pytest.raises(ControlRefused) as refused:
            await world.apply(layout)
        assert reason in str(refused.value)


async def test_layouts_with_faults_are_told(clock: FakeClock) -> None:
    """The sound ones beside them can be used."""
    entries = (
        LayoutEntry(name="bad", devices={"1g": 1}),
        LayoutEntry(name="off", enabled=False, devices={"1g.10gb": 1}),
        LayoutEntry(name="good", gpus=("1",), devices={"1g.10gb": 2, "2g.20gb": 0}),
        LayoutEntry(name="good", gpus=("2",), devices={"7g.80gb": 1}),
    )
    world = World(clock, layouts=entries, layout="good")
    async with world.running():
        await world.until_standing("success")
        assert (await world.profiles())[:4] == [WHOLE, ["1g.10gb", "1g.10gb"], ["7g.80gb"], WHOLE]
        (told,) = [one for one in world.conditions.all_set() if one.code == "mig-layouts-invalid"]
        assert "mig.layouts[0].devices: '1g' is no MIG profile" in told.detail
        assert "mig.layouts[1].devices: there are none with enabled: false" in told.detail


async def test_what_was_asked_for_last_is_had_again_after_a_boot(clock: FakeClock) -> None:
    """Instances do not survive one; without an API server too."""
    world = World(clock)
    async with world.running():
        await world.apply("all-balanced")
        await world.until_standing("success")
    again = World(clock)
    again.store.body = world.store.body
    async with again.running():
        state = await again.until_standing("success")
        assert (state.layout, state.origin) == ("all-balanced", "me")
        assert await again.profiles() == [BALANCED] * 8


async def test_what_cannot_be_remembered_is_not_made_up(clock: FakeClock) -> None:
    """Neither from a broken file, nor from a disk that fails."""
    world = World(clock)
    world.store.body = b"{"
    async with world.running():
        assert (await world.until(lambda state: True)).layout == ""
        world.store.trouble = "disk full"
        await world.apply("all-enabled")
        await world.until_standing("success")
        assert await world.profiles() == [[]] * 8
        assert await world.apply("all-enabled") == "all-enabled is in place"
    assert world.store.body is None


async def test_a_label_is_waited_for_before_the_last_wish_is_taken(clock: FakeClock) -> None:
    """It may have changed while the agent was away; an API server that stays away delays nothing for long."""
    world = World(clock)
    world.store.body = b'{"layout": "all-1g.10gb", "origin": "x", "label": "all-1g.10gb"}'
    world.has_cluster = True
    async with world.running():
        await anyio.sleep(3)
        assert world.state.layout == ""
        world.ask("all-disabled")
        await world.until_standing("success")
        assert await world.profiles() == [WHOLE] * 8


async def test_a_gpu_that_somebody_cuts_otherwise_is_told(clock: FakeClock) -> None:
    """It is left to them until somebody asks again."""
    world = World(clock, layout="all-1g.10gb")
    async with world.running():
        await world.until_standing("success")
        await world.gpus.inject("mig", ["3", "7g.80gb"])
        await world.look()
        await anyio.sleep(60)
        assert world.codes() == {"mig-drifted"}
        assert (await world.profiles())[3] == ["7g.80gb"]
        await world.apply("")
        await world.until(lambda state: state.standing == "success" and "mig-drifted" not in world.codes())
        assert (await world.profiles())[3] == SEVEN


async def test_a_gpu_that_comes_later_is_cut_as_well(clock: FakeClock) -> None:
    """Nobody has cut it otherwise: it hung, or was not there yet, when the others were cut."""
    world = World(clock, layout="all-1g.10gb")
    world.hidden = {3}
    async with world.running():
        await world.until_standing("success")
        assert (await world.profiles())[3] == WHOLE
        world.hidden = set()
        await world.look()
        await anyio.sleep(60)
        assert world.state.standing == "success"
        assert world.codes() == set()
        assert (await world.profiles())[3] == SEVEN


async def test_a_gpu_that_was_away_is_not_cut_anew(clock: FakeClock) -> None:
    """It was there when all was in place, and somebody has cut it otherwise."""
    world = World(clock, layout="all-1g.10gb")
    async with world.running():
        await world.until_standing("success")
        world.hidden = {3}
        await world.look()
        await world.gpus.inject("mig", ["3", "7g.80gb"])
        await anyio.sleep(60)
        world.hidden = set()
        await world.look()
        await anyio.sleep(60)
        assert world.codes() == {"mig-drifted"}
        assert (await world.profiles())[3] == ["7g.80gb"]


async def go_away(world: World, how: str) -> None:
    """One GPU, or the driver with all of them; what is cut into the GPU is gone with it."""
    if how == "driver":
        world.bus.publish_state(DriverState(phase=DriverPhase.NOT_LOADED), source="driver")
    elif how == "hidden":
        world.hidden = {3}
        await world.look()
    else:
        await world.gpus.inject("lost", ["3"])
        await world.look()
    await anyio.sleep(60)
    if how == "lost":
        await world.gpus.inject("back", ["3"])
    await world.gpus.inject("mig", ["3", "off"])


async def come_back(world: World) -> None:
    if world.bus.latest(DriverState) is not None:
        world.bus.publish_state(DriverState(phase=DriverPhase.READY), source="driver")
        await anyio.sleep(1)  # until the inventory looks, all is as it was
    world.hidden = set()
    await world.look()
    await anyio.sleep(60)


@pytest.mark.parametrize("how", ["driver", "hidden", "lost"])
async def test_a_gpu_that_comes_back_without_its_cut_is_cut_anew(clock: FakeClock, how: str) -> None:
    """A card that was reset and a driver that was loaded anew have no MIG devices: nobody has taken them away."""
    world = World(clock, layout="all-1g.10gb")
    async with world.running():
        await world.until_standing("success")
        for _ in range(2):
            await go_away(world, how)
            await come_back(world)
            assert (world.state.standing, world.codes()) == ("success", set())
            assert (await world.profiles())[3] == SEVEN
        await world.look()
        await world.gpus.inject("mig", ["3", "off"])
        await world.look()
        await anyio.sleep(60)
        assert world.codes() == {"mig-drifted"}  # that was somebody
        assert (await world.profiles())[3] == WHOLE


async def test_a_gpu_that_comes_later_and_cannot_be_cut_is_told(clock: FakeClock) -> None:
    """The layout is not in place, then."""
    world = World(clock, layout="all-1g.10gb")
    world.hidden = {2}
    async with world.running():
        await world.until_standing("success")
        world.hidden = set()
        await world.gpus.inject("lost", ["2"])
        await world.look()
        state = await world.until_standing("failed")
        assert state.detail.startswith("GPU 2 (NVIDIA H100 80GB HBM3) is lost: ")


async def test_a_lost_gpu_is_refused(clock: FakeClock) -> None:
    """Before anything changes on the others."""
    world = World(clock)
    async with world.running():
        await world.gpus.inject("lost", ["2"])
        await world.look()
        world.ask("all-enabled")
        state = await world.until_standing("failed")
        assert state.detail.startswith("GPU 2 (NVIDIA H100 80GB HBM3) is lost: ")
        assert await world.profiles() == [WHOLE] * 8


@pytest.mark.parametrize("door", [AllocationMode.FRACTIONS, AllocationMode.CLAIMS])
async def test_a_gpu_that_is_shared_otherwise_is_left_alone(clock: FakeClock, door: AllocationMode) -> None:
    """Nobody here could keep new users from it: meant among all it is passed over, meant by itself it is refused."""
    world = World(clock)
    async with world.running():
        gpu = (await world.look()).gpus[3]
        standing = GpuAllocationMode(
            gpu=gpu.uuid, index=3, address=gpu.pci.address, door=door, wanted=door, reason="a rule", is_open=True
        )
        world.bus.publish_state(Offering(doors=(standing,)), source="offering")
        world.ask("all-enabled")
        state = await world.until_standing("success")
        assert state.detail == f"GPU 3 goes through the door {door}, and is left as it is"
        assert await world.profiles() == [[]] * 3 + [WHOLE] + [[]] * 4
        world.file = LayoutsRead(layouts={"third": (LayoutRule(enabled=True, indexes=(3,)),)})
        world.ask("third")
        state = await world.until_standing("failed")
        assert f"GPU 3 (NVIDIA H100 80GB HBM3) goes through the door {door}: choose whole" in state.detail


async def test_what_is_not_seen_is_told(clock: FakeClock) -> None:
    """Nobody could be given it."""
    world = World(clock)
    world.is_blind = True
    async with world.running():
        world.ask("all-enabled")
        state = await world.until_standing("failed")
        assert "was cut, and is not seen so" in state.detail


async def test_a_reload_is_a_reason_to_try_again(clock: FakeClock) -> None:
    """Whoever mends a layout reloads."""
    world = World(clock, layout="mine")
    async with world.running():
        await world.until_standing("failed")
        world.live.replace(Settings(mig=MigSettings(manage=True, layout="mine", layouts=(LayoutEntry(name="mine"),))))
        world.bus.publish_fact(ConfigurationReloaded(changed=("mig.layouts",)), source="control")
        await world.until_standing("success")
        assert await world.profiles() == [[]] * 8


async def test_nobody_asked_has_nothing_to_repeat(clock: FakeClock) -> None:
    """And where nobody cuts GPUs nobody can be asked."""
    world = World(clock)
    with pytest.raises(ControlRefused, match=r"set mig\.manage to true"):
        await world.apply("all-enabled")
    async with world.running():
        with pytest.raises(ControlRefused, match="no layout is asked for"):
            await world.apply("")


class Places:
    """Every process is of the pod that has the GPU."""

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        return dict.fromkeys(pids, ProcessPlace(pod_uid="uid-0"))


async def test_a_process_of_a_pod_that_is_named_is_not_told_again(clock: FakeClock) -> None:
    """The pod is who is waited for."""
    world = World(clock, places=Places())
    async with world.running():
        gpu = (await world.look()).gpus[0]
        world.hold(gpu.uuid)
        world.gpus.set_holders({gpu.uuid: "ns/train-0"})
        await anyio.sleep(5)
        world.bus.publish_state(await world.gpus.read_sample(), source="inventory")
        world.ask("all-enabled")
        state = await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        assert state.changes[0].doing == "waits for ns/train-0 (main)"
