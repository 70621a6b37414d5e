"""Around an act: MPS daemons quit, settings come back, a person waits, and a request for a reboot is taken back."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.app.driver_release import DriverRelease
from nodeagent.components.repairs.drain_task import DRAINING, QUIT_SECONDS
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.errors import ControlRefused
from nodeagent.model.gpu import ComputeMode
from nodeagent.model.mps import MpsClient, MpsDaemon, MpsLimits, MpsPhase, MpsServer, MpsState
from nodeagent.model.orders import RELEASE, RESUME, NoArguments, ReleaseCommand
from nodeagent.model.repairs import Ending, Outcome, ToolAnswer
from tests.component.repairs.test_acting import DONE, ILL, ActingWorld, Host
from tests.component.repairs.test_repairs import OFF_THE_BUS
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


def make_daemon(**fields: object) -> MpsDaemon:
    """The MPS daemon of GPU 3."""
    gpu = gpu_uuid(3)
    daemon = MpsDaemon(name=gpu, gpus=(gpu,), owner="gpu", limits=MpsLimits(), phase=MpsPhase.READY, pid=70)
    return replace(daemon, **fields)


async def test_what_the_reset_took_is_set_again(clock: FakeClock) -> None:
    """Except for the compute mode of a GPU with an MPS daemon, which sets it."""
    for daemons, mode in (((), ["compute mode PROHIBITED 3"]), ((make_daemon(pid=None, phase=MpsPhase.WAITING),), [])):
        host = Host("done")
        before = {"power_limit_milliwatts": 500_000, "application_clocks_mhz": (2619, 1500)}
        host.gpus = {
            uuid: replace(gpu, compute_mode=ComputeMode.PROHIBITED, **before) for uuid, gpu in host.gpus.items()
        }
        host.lost_by_reset = {
            "power_limit_milliwatts": 700_000,
            "application_clocks_mhz": (2619, 1980),
            "compute_mode": ComputeMode.DEFAULT,
        }
        async with ActingWorld(clock, host).running() as world:
            world.bus.publish_state(MpsState(daemons=daemons), source="mps")
            await world.fail(3, ILL)
            await anyio.sleep(20)
            assert host.done[5:] == ["power 500000 3", *mode, "clocks 2619,1500 3"]
            assert world.session.ending is Ending.REPAIRED


async def test_a_reset_waits_until_the_mps_daemon_has_quit(clock: FakeClock) -> None:
    """A client is waited for before the driver is let go; the daemon itself quits for a driver that is."""
    host = Host("done")
    async with ActingWorld(clock, host).running() as world:
        client = MpsServer(pid=71, clients=(MpsClient(pid=9, pod="team/train"),))
        world.bus.publish_state(MpsState(daemons=(make_daemon(servers=(client,)),)), source="mps")
        await world.fail(3, ILL)
        assert "it serves team/train, and quits without clients only" in world.details(DRAINING)[0]
        assert host.done == []
        world.bus.publish_state(MpsState(daemons=(make_daemon(),)), source="mps")
        await anyio.sleep(20)
        assert host.done == ["release: session 40 resets GPUs"]
        world.bus.publish_state(MpsState(daemons=(make_daemon(pid=None, phase=MpsPhase.WAITING),)), source="mps")
        await anyio.sleep(20)
        assert "reset 3" in host.done
        assert world.session.ending is Ending.REPAIRED


async def test_an_mps_daemon_that_does_not_quit_refuses_the_reset(clock: FakeClock) -> None:
    host = Host()
    async with ActingWorld(clock, host).running() as world:
        world.bus.publish_state(MpsState(daemons=(make_daemon(),)), source="mps")
        await world.fail(3, ILL)
        await anyio.sleep(QUIT_SECONDS + 1)
        (attempt,) = world.session.attempts
        assert (attempt.outcome, attempt.detail) == (Outcome.IN_USE, f"the MPS daemon {gpu_uuid(3)} did not quit")
        assert host.done == ["release: session 40 resets GPUs", "resume"]


async def test_a_person_neither_takes_nor_gives_the_driver_during_a_reset(clock: FakeClock) -> None:
    """The session is named; once the reset has ended the driver is anybody's."""
    host, orders = Host("done"), OrderHandlers()
    async with ActingWorld(clock, host).running() as world:
        DriverRelease(world.bus, world.live, orders, host)  # type: ignore[arg-type]  # of the source only what is used
        await world.fail(3, ILL)
        for order, command in ((RESUME, NoArguments()), (RELEASE, ReleaseCommand(reason="upgrade"))):
            with pytest.raises(ControlRefused, match="session 40 of the repairs has the driver until its reset has"):
                await orders.give(order, command)
        await anyio.sleep(60)
        assert world.session.ending is Ending.REPAIRED
        assert await orders.give(RESUME, NoArguments()) == "the driver is taken back"


async def test_the_annotation_for_a_reboot_goes_once_the_boot_has_come(clock: FakeClock) -> None:
    """Not while the session waits; what the API server refuses is tried again, and then left alone."""
    settings = RepairsSettings(mode="act", up_to="reboot", reboot_by="node_annotation")
    annotated = ClusterNode(name="n", uid="u", written_annotations=(settings.reboot_annotation.key,))
    host = Host()
    async with ActingWorld(clock, host, settings=settings).running() as world:
        await world.fail(3, OFF_THE_BUS)
        world.bus.publish_state(annotated, source="test")
        await anyio.sleep(600)
        assert host.done == ["reboot: session 40 of nodeagent: xid-79"]
    world.memory.boot = "two"
    host.withdrawals = [ToolAnswer(code=None, said="too many requests"), DONE]
    after = ActingWorld(clock, host, world.memory, settings=settings)
    after.judge({})
    async with after.running(1.0):
        after.bus.publish_state(annotated, source="test")
        await anyio.sleep(10)
        assert host.done[1:] == ["withdraw", "withdraw"]
        assert after.session.under_way is not None, "the boot is proven by findings that have yet to settle"
