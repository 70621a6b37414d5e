"""What the kubelet gets when it asks: allocations, preferences and starts of containers, on virtual time."""

import anyio
import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import Mps, SharedResource, SharingSettings
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown, JournalUnavailable
from nodeagent.model.health import Verdict
from nodeagent.model.ids import DeviceId
from nodeagent.model.mps import MpsPhase, MpsState
from nodeagent.model.plugin import HandoutFacts
from nodeagent.model.runtime import CdiSpecFile, CdiState
from tests.component.deviceplugin.harness import CDI, GPU, TWO, World, ids, report
from tests.support.gpus import gpu_uuid, make_node
from tests.support.mps import daemon_of
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


async def test_an_answer_leaves_after_the_journal_has_it(world: World) -> None:
    """What is answered was recorded, and what cannot be recorded is not answered."""
    async with world.running():
        await world.publish(TWO)
        plugin = world.serving.plugins[GPU]
        answer = await plugin.allocate(ids(1))
        assert answer.cdi_devices == (f"{CDI}/gpu={gpu_uuid(1)}",)
        assert world.journal.recorded == [tuple(ids(1))]
        world.journal.refusal = JournalUnavailable("/j", "disk full")
        with pytest.raises(JournalUnavailable):
            await plugin.allocate(ids(0))


async def test_an_answer_has_the_receipt_of_its_allocation(clock: FakeClock) -> None:
    """Where the settings give containers one: no two answers have the same."""
    world = World(clock, Settings(signals=SignalsSettings(receipts=True)))
    async with world.running():
        await world.publish(TWO)
        answers = [await world.serving.plugins[GPU].allocate(ids(index)) for index in range(2)]
        mounts = [answer.mounts[0] for answer in answers]
        assert [(one.container_path, one.read_only) for one in mounts] == [("/run/nodeagent", True)] * 2
        assert mounts[0].host_path != mounts[1].host_path
        assert all(one.host_path.startswith("/var/lib/nodeagent/receipts/a") for one in mounts)


@pytest.mark.parametrize(
    ("device", "error"),
    [(DeviceId("GPU-foreign"), DeviceUnknown), (DeviceId(gpu_uuid(0)), DeviceUnhealthy)],
)
async def test_unfit_devices_are_refused_and_not_recorded(
    world: World, device: DeviceId, error: type[Exception]
) -> None:
    """An unknown or unhealthy device changes nothing, not even together with a good one."""
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.UNHEALTHY, g1=Verdict.HEALTHY))
        with pytest.raises(error):
            await world.serving.plugins[GPU].allocate([*ids(1), device])
        assert world.journal.recorded == []


async def test_preference_steers_away_from_what_may_be_held(world: World) -> None:
    """The kubelet may have forgotten: the other devices go first."""
    async with world.running():
        await world.publish(make_node(8))
        plugin = world.serving.plugins[GPU]
        assert list(plugin.prefer(ids(*range(8)), [], 2)) == ids(0, 1)
        world.journal.doubted = frozenset(ids(0, 1, 2, 3, 4))
        assert list(plugin.prefer(ids(*range(8)), [], 2)) == ids(5, 6)


async def test_the_start_of_a_container_tells_who_it_is(world: World) -> None:
    """Each start is a question to the kubelet; on a broken device the container does not start."""
    async with world.running():
        await world.publish(TWO, report(g0=Verdict.UNHEALTHY, g1=Verdict.UNKNOWN))
        plugin = world.serving.plugins[GPU]
        assert plugin.options.pre_start
        await plugin.pre_start(ids(1))
        with pytest.raises(DeviceUnhealthy, match="xid 79"):
            await plugin.pre_start(ids(0))
        assert world.journal.identified == [tuple(ids(1))]


async def test_a_look_that_fails_changes_nothing(world: World) -> None:
    world.facts = HandoutFacts(imex_channels=(3,))
    async with world.running():
        await world.publish(TWO)
        world.facts_fail = True
        await anyio.sleep(6)
        answer = await world.serving.plugins[GPU].allocate(ids(0))
        assert f"{CDI}/imex-channel=3" in answer.cdi_devices


async def test_extras_are_named_when_their_specification_is_there(clock: FakeClock) -> None:
    """A CDI name without a specification would keep the container from starting."""
    world = World(clock, Settings(device_plugin=DevicePluginSettings(gdrcopy=True, gds=True)))
    async with world.running():
        gpus = CdiSpecFile(path="/b", kind=f"{CDI}/gpu", version="0.5.0", devices=(gpu_uuid(0),))
        storage = CdiSpecFile(path="/c", kind=f"{CDI}/gds", version="0.5.0")
        await world.publish(TWO, CdiState(generation=1, files=(gpus, storage)))
        answer = await world.serving.plugins[GPU].allocate(ids(0))
        assert answer.cdi_devices == (f"{CDI}/gpu={gpu_uuid(0)}", f"{CDI}/gds=all")


async def test_shares_by_mps_are_given_out_while_their_daemon_is_ready(clock: FakeClock) -> None:
    """With what a client needs; those of a daemon that died, or that nobody looks after, are not."""
    shared = (SharedResource(name="gpu", replicas=2),)
    world = World(clock, Settings(sharing=SharingSettings(mps=Mps(resources=shared))))
    async with world.running():
        await world.publish(TWO)
        assert not any(world.serving.newest().values())
        broken = daemon_of(gpu_uuid(1), MpsPhase.BROKEN, "it ended")
        await world.publish(MpsState(daemons=(daemon_of(gpu_uuid(0)), broken)))
        await anyio.sleep(1)
        assert world.serving.newest() == {"0::0": True, "0::1": True, "1::0": False, "1::1": False}
        plugin = world.serving.plugins[GPU]
        answer = await plugin.allocate([DeviceId(f"{gpu_uuid(0)}::1")])
        assert answer.environment["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu/pipe"
        assert [mount.host_path for mount in answer.mounts] == [
            f"/run/nvidia/mps/{gpu_uuid(0)}/pipe",
            "/run/nvidia/mps/shm",
        ]
        with pytest.raises(DeviceUnhealthy, match="its MPS daemon is broken: it ended"):
            await plugin.allocate([DeviceId(f"{gpu_uuid(1)}::0")])
