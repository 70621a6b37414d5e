"""The component with made-up daemons, on time that jumps: what a simulation shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from nodeagent.components.mps.component import JOURNAL_RETRY_SECONDS
from nodeagent.model.driver import DriverPhase
from nodeagent.model.errors import MpsRefused, MpsSilent
from nodeagent.model.gpu import ComputeMode
from nodeagent.model.journal import Step
from nodeagent.model.mps import MpsLimits, MpsPhase, MpsPlace
from nodeagent.model.ports import ProcessPlace
from nodeagent.rules.mps.access import plan_place
from nodeagent.rules.mps.daemons import OWNER
from nodeagent_sim.mps import SimulatedMps
from tests.component.mig.harness import Book
from tests.component.mps.harness import World, share, slice_time
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


class Nowhere:
    """No process is anybody's."""

    async def read_places(self, _pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        return {}


async def test_made_up_daemons_take_limits_and_end(clock: FakeClock, tmp_path: Path) -> None:
    """Shares are given out, and taken back, as on a real node."""
    world = World(clock, tmp_path, sharing=share(2))
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        assert (daemon.starts, daemon.limits.thread_percentage) == (1, 50)
        world.configure(share(4))
        await world.until(lambda state: state.daemons[0].limits.thread_percentage == 25)
        world.configure(slice_time(2))
        await world.until_gone()
        assert world.book.ended == ["given back"]
    world.close()


async def test_daemons_are_listed_as_their_gpus_are_counted(clock: FakeClock, tmp_path: Path) -> None:
    """However the GPUs are named; that of a GPU which is gone is the last."""
    world = World(clock, tmp_path, sharing=share(2, devices="all"), profile="dgx-h100")
    uuids = await world.uuids()
    async with world.running():
        daemons = await world.until_phase(MpsPhase.READY)
        assert [one.gpus for one in daemons] == [(uuid,) for uuid in uuids]
        inventory = await world.look()
        world.bus.publish_state(type(inventory)(generation=99, gpus=inventory.gpus[1:]), source="inventory")
        await world.until(lambda state: state.daemons[0].gpus == (uuids[1],))
        world.configure(slice_time(2))
        await world.until_gone()
    world.close()


async def test_one_daemon_of_a_resource_keeps_its_other_gpus_when_one_is_taken_away(
    clock: FakeClock, tmp_path: Path
) -> None:
    """Who works through it on another GPU is not disturbed."""
    world = World(clock, tmp_path, sharing=share(2, devices="all"), daemon_per="resource")
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        assert (daemon.name, len(daemon.gpus)) == ("nvidia.com/gpu", len(await world.uuids()))
        world.configure(share(2, devices=1))
        await anyio.sleep(5)
        assert world.state.daemons[0].pid == daemon.pid
    world.close()


@pytest.mark.parametrize("is_killed", [False, True])
async def test_one_daemon_of_a_resource_comes_again_without_a_gpu_that_is_gone(
    clock: FakeClock, tmp_path: Path, is_killed: bool
) -> None:
    """Its other GPUs are not lost with that one; also where the agent was not there to see it go."""
    world = World(clock, tmp_path, sharing=share(2, devices="all"), daemon_per="resource")
    here, gone = await world.uuids()
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        world.hold(f"{here}::0")
        if not is_killed:
            await world.gpus.inject("unplug", ["1"])
            await world.look()
            await anyio.sleep(5)
            assert world.state.daemons[0].gpus == (here, gone)
            assert daemon.pid is not None
            await world.host.kill(daemon.pid)
            (again,) = (await world.until(lambda state: state.daemons[0].starts == 2)).daemons
            assert (again.phase, again.gpus) == (MpsPhase.READY, (here,))
    if is_killed:
        await world.gpus.inject("unplug", ["1"])
        world.host = SimulatedMps()
    for _ in range(2):
        async with world.running():
            (again,) = await world.until_phase(MpsPhase.READY)
            assert again.gpus == (here,)
    assert world.book.ended == ["gone"]
    world.close()


async def test_what_another_version_has_written_is_left_alone(clock: FakeClock, tmp_path: Path) -> None:
    """And told, as nobody else will give the GPU back."""
    world = World(clock, tmp_path)
    uuid = (await world.uuids())[1]
    await world.book.begin_change(OWNER, uuid, Step(name="engage", at_seconds=0.0, payload="{}"))
    async with world.running():
        await world.until_phase(MpsPhase.READY)
        assert "mps-record-unreadable" in {one.code for one in world.conditions.all_set()}
        assert len(world.book.under_way) == 2
    world.close()


async def test_a_journal_that_cannot_be_written_changes_no_gpu(clock: FakeClock, tmp_path: Path) -> None:
    """What is not written down could not be taken back."""
    world = World(clock, tmp_path)
    world.book.breaks_after = 0
    async with world.running():
        (down,) = await world.until_phase(MpsPhase.BROKEN)
        assert "no space left" in down.reason
        assert set(await world.modes()) == {ComputeMode.DEFAULT}
        world.book.breaks_after = 100
        await world.until_phase(MpsPhase.READY)
    world.close()


async def test_nothing_is_begun_before_it_is_known_what_was(clock: FakeClock, tmp_path: Path) -> None:
    """A journal that is not read yet may name GPUs that are changed already; it is asked again."""
    world = World(clock, tmp_path)
    world.book.is_known = False
    async with world.running():
        await anyio.sleep(10 * JOURNAL_RETRY_SECONDS)
        assert not world.state.daemons
        assert set(await world.modes()) == {ComputeMode.DEFAULT}
        world.book.is_known = True
        await world.until_phase(MpsPhase.READY)
    world.close()


async def test_a_daemon_whose_record_is_lost_has_its_gpu_and_gives_it_back_unrestricted(
    clock: FakeClock, tmp_path: Path
) -> None:
    """Though it ends before that is written down again: who has its shares is not in its way, nor is its mode kept."""
    world = World(clock, tmp_path)
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
    world.hold(f"{first.name}::0")
    world.book = Book()
    world.book.breaks_after = 0
    async with world.running():
        await world.until_phase(MpsPhase.BROKEN)
        assert first.pid is not None
        await world.host.kill(first.pid)
        world.book.breaks_after = 100
        (again,) = await world.until_phase(MpsPhase.READY)
        assert (again.pid != first.pid, again.starts) == (True, 1)
        world.hold()
        world.configure(slice_time(2))
        await world.until_gone()
        assert set(await world.modes()) == {ComputeMode.DEFAULT}
    world.close()


async def test_a_daemon_of_a_claim_is_not_started_again_without_its_gpu(clock: FakeClock, tmp_path: Path) -> None:
    """The claim has it still, so it is told."""
    world = World(clock, tmp_path, sharing=slice_time(2), claims=True)
    gpus = (await world.uuids())[:1]
    async with world.running():
        await world.handle.get().open_claim("uid", gpus, MpsLimits())
        (daemon,) = world.state.daemons
        inventory = await world.look()
        world.bus.publish_state(type(inventory)(generation=99, gpus=inventory.gpus[1:]), source="inventory")
        assert daemon.pid is not None
        await world.host.kill(daemon.pid)
        told = f"{gpus[0]} is not on this node any more"
        state = await world.until(lambda state: state.daemons[0].reason == told)
        assert state.daemons[0].phase is MpsPhase.BROKEN
        assert await world.find(daemon.name) is None
        await world.handle.get().close_claim("uid")
        assert world.book.ended == ["gone"]
    world.close()


async def test_a_gpu_that_is_gone_is_not_given_back(clock: FakeClock, tmp_path: Path) -> None:
    """Nobody waits for it."""
    world = World(clock, tmp_path)
    async with world.running():
        await world.until_phase(MpsPhase.READY)
        inventory = await world.look()
        world.bus.publish_state(type(inventory)(generation=99, gpus=inventory.gpus[1:]), source="inventory")
        world.configure(slice_time(2))
        await world.until_gone()
        assert world.book.ended == ["gone"]
    world.close()


async def test_a_claim_waits_half_a_minute_for_its_daemon(clock: FakeClock, tmp_path: Path) -> None:
    """Then it is told why, and is asked for again by the kubelet; nothing of it is left meanwhile."""
    world = World(clock, tmp_path, sharing=slice_time(2), claims=True, places=Nowhere())
    gpus = (await world.uuids())[:1]
    async with world.running():
        world.drive(DriverPhase.NOT_LOADED)
        with pytest.raises(MpsRefused, match="the driver is not ready"):
            await world.handle.get().open_claim("uid", gpus, MpsLimits())
        assert anyio.current_time() >= 30
        await world.until_gone()
        world.drive(DriverPhase.READY)
        assert (await world.handle.get().open_claim("uid", gpus, MpsLimits())).environment
        await world.handle.get().close_claim("uid")
        assert not world.state.daemons
    world.close()


async def test_a_claim_whose_gpu_cannot_be_given_back_is_not_closed(clock: FakeClock, tmp_path: Path) -> None:
    """It is asked again, until it can."""
    world = World(clock, tmp_path, sharing=slice_time(2), claims=True)
    gpus = (await world.uuids())[:1]
    async with world.running():
        await world.handle.get().open_claim("uid", gpus, MpsLimits())
        world.book.settles = False
        with pytest.raises(MpsRefused, match=r"has yet to end: .*no space left"):
            await world.handle.get().close_claim("uid")
        world.book.settles = True
        await world.handle.get().close_claim("uid")
        assert set(await world.modes()) == {ComputeMode.DEFAULT}
    world.close()


async def test_a_made_up_daemon_that_is_not_there_does_not_answer(clock: FakeClock, tmp_path: Path) -> None:
    """Nor can it be waited for."""
    world, host = World(clock, tmp_path), SimulatedMps()
    place = plan_place(world.live.now, "x")
    with pytest.raises(MpsSilent):
        await host.ask(place, ("get_server_list",))
    await host.wait_end(1)
    pid = await host.start(place, ())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.wait_end, pid)
        await anyio.sleep(1)
        await host.kill(pid)
    assert await host.find(place) is None
    world.close()


class Unkillable(SimulatedMps):
    """A daemon that no command and no signal ends."""

    async def ask(self, place: MpsPlace, commands: Sequence[str], timeout_seconds: float = 0.0) -> tuple[str, ...]:
        if commands[0].startswith("quit"):
            raise MpsSilent("it does not answer")
        return await super().ask(place, commands, timeout_seconds)

    async def kill(self, pid: int) -> None:
        """Do nothing."""


async def test_a_daemon_that_survives_its_kill_is_shown_with_its_process(clock: FakeClock, tmp_path: Path) -> None:
    """Whoever wants the GPU unused has to know who has it; with the driver back the daemon is at work again."""
    world = World(clock, tmp_path)
    world.host = Unkillable()
    async with world.running():
        (first,) = await world.until_phase(MpsPhase.READY)
        world.drive(DriverPhase.RELEASED)
        (stuck,) = await world.until_phase(MpsPhase.WAITING)
        assert stuck.pid == first.pid is not None
        world.drive(DriverPhase.READY)
        assert (await world.until_phase(MpsPhase.READY))[0].pid == first.pid
    world.close()
