"""The brake between the journal, the driver's faults, the kubelet's requests, a person and the clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.cluster import BRAKE_TAINT, ClusterLink, ClusterNode, Taint
from nodeagent.model.cordons import CordonSource
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import (
    AllocationRefused,
    ConfigurationReloaded,
    FractionRefused,
    GpuCordoned,
    GpuUncordoned,
)
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.proof import GpuProofs, ProofRecord, ProofStage, ProofVerdict
from nodeagent.rules.brake import TAINT_AWAITED_SECONDS
from tests.component.offering.test_cordons import TWO, World
from tests.support.gpus import gpu_uuid
from tests.unit.rules.test_signals import make_fault

pytestmark = pytest.mark.virtual_time

RESOURCE = ResourceName("nvidia.com/gpu")
SIGNALS = SignalsSettings()
PAUSE, WITHIN = SIGNALS.brake_pause_seconds, SIGNALS.brake_within_seconds


class BrakeWorld(World):
    """With pods that come and go on GPU 1."""

    rows: tuple[Allocation, ...] = ()
    number = 0

    async def start(self) -> None:
        self.number += 1
        row = Allocation(
            number=self.number,
            resource=RESOURCE,
            devices=(DeviceId(gpu_uuid(1)),),
            since_seconds=self.clock.wall(),
        )
        await self.hold(row)

    async def hold(self, *rows: Allocation) -> None:
        self.rows = rows
        self.bus.publish_state(AllocationTable(allocations=rows), source="allocations")
        await anyio.sleep(1)

    async def lose(self, times: int = 1, xid: int = 94) -> None:
        for _ in range(times):
            await self.start()
            self.bus.publish_fact(make_fault(xid, gpu=gpu_uuid(1), devices=(gpu_uuid(1),), index=1), source="test")
            await anyio.sleep(1)
            await self.hold()

    async def refuse(self, times: int = 1, *, is_of_node: bool = False) -> None:
        ids, reason = (DeviceId(gpu_uuid(1)),), "no space left on device"
        for _ in range(times):
            self.bus.publish_fact(
                AllocationRefused(resource=RESOURCE, devices=ids, reason=reason, is_of_node=is_of_node), source="test"
            )
            await anyio.sleep(1)

    def braked(self) -> list[str]:
        return self.details("gpu-braked")

    async def set_signals(self, signals: SignalsSettings) -> None:
        self.live.now = Settings(signals=signals)
        self.bus.publish_fact(ConfigurationReloaded(changed=("signals",)), source="agent")
        await anyio.sleep(1)


@asynccontextmanager
async def open_world() -> AsyncIterator[BrakeWorld]:
    world = BrakeWorld()
    world.bus.publish_state(TWO, source="inventory")
    world.bus.publish_state(AllocationTable(), source="allocations")
    async with world.running():
        yield world


async def test_the_third_lost_pod_closes_its_gpu() -> None:
    """Durably; the fact, from which the event on the node is made, and the condition say why and until when."""
    async with open_world() as world:
        with world.bus.listen(GpuCordoned, client="test") as facts:
            await world.lose(2)
            assert (world.is_open(), world.braked()) == ((True, True), [])
            await world.lose()
            assert world.is_open() == (True, False)
            fact = (await anext(facts)).value
        (cordon,) = world.memory.kept[CordonSource.BRAKE]
        assert fact == GpuCordoned(gpu=gpu_uuid(1), source=CordonSource.BRAKE, detail=cordon.describe())
        assert fact.detail.startswith("by the brake: 3 starts ended within 60 s, beside XID 94 of the GPU, until ")
        assert world.braked() == [f"GPU 1: closed {fact.detail}"]
        assert world.details("gpu-cordoned") == []


def show_node(world: BrakeWorld, *taints: Taint) -> None:
    world.bus.publish_state(ClusterLink(reachable=True), source="cluster")
    world.bus.publish_state(ClusterNode(name="node-1", uid="uid-1", taints=taints), source="cluster")


@pytest.mark.parametrize("is_reached", [True, False])
async def test_a_closing_waits_for_the_taint_where_schedulers_can_be_told(is_reached: bool) -> None:
    """Told at once in either case, with the condition; the GPU is closed as soon as the taint is there."""
    async with open_world() as world:
        show_node(world)
        world.bus.publish_state(ClusterLink(reachable=is_reached), source="cluster")
        await world.lose(3)
        assert (world.is_open(), len(world.braked())) == ((True, is_reached), 1)
        show_node(world, BRAKE_TAINT)
        await anyio.sleep(0.1)
        assert world.is_open() == (True, False)


async def test_a_closing_waits_two_seconds_for_the_taint_at_most() -> None:
    """Where the API server refuses the taint, say."""
    async with open_world() as world:
        show_node(world)
        await world.lose(3)
        assert world.is_open() == (True, True)
        await anyio.sleep(TAINT_AWAITED_SECONDS)
        assert world.is_open() == (True, False)


async def test_pods_that_end_by_themselves_close_nothing() -> None:
    async with open_world() as world:
        await world.lose(30, xid=31)
        for _ in range(30):
            await world.start()
            await world.hold()
        assert world.is_open() == (True, True)


async def test_one_pod_tries_the_gpu_after_the_pause() -> None:
    """Nobody else gets it meanwhile; the pod that lasts opens the GPU, and that is told."""
    async with open_world() as world:
        with world.bus.listen(GpuUncordoned, client="test") as facts:
            await world.lose(3)
            await anyio.sleep(PAUSE)
            assert world.is_open() == (True, True)
            assert world.door(1).trial is not None
            assert "a single pod may try the GPU, after 1 closings" in world.braked()[0]
            await world.start()
            assert (world.is_open(), world.door(1).trial) == ((True, False), None)
            assert world.braked()[0].startswith("GPU 1: closed by the brake")
            await anyio.sleep(WITHIN + 1)
            assert world.is_open() == (True, True)
            assert (world.braked(), world.memory.kept[CordonSource.BRAKE]) == ([], ())
            fact = (await anext(facts)).value
        assert fact == GpuUncordoned(gpu=gpu_uuid(1), source=CordonSource.BRAKE, reason="a start has proved the GPU")


async def test_a_proof_of_the_agent_ends_the_pause() -> None:
    """A single pod may try the GPU at once; a proof that failed ends nothing."""
    async with open_world() as world:
        await world.lose(3)
        failed = ProofRecord(verdict=ProofVerdict.FAILED, ended_seconds=world.clock.wall(), took_seconds=1.0)
        world.bus.publish_state(GpuProofs(gpus={gpu_uuid(1): failed}), source="proof")
        await anyio.sleep(1)
        assert "closed by the brake" in world.braked()[0]
        passed = ProofRecord(
            verdict=ProofVerdict.PASSED,
            ended_seconds=world.clock.wall(),
            took_seconds=1.0,
            level=ProofStage.QUICK,
            proven_seconds=world.clock.wall(),
        )
        world.bus.publish_state(GpuProofs(gpus={gpu_uuid(1): passed}), source="proof")
        await anyio.sleep(1)
        assert "a single pod may try the GPU" in world.braked()[0]
        await world.start()
        await anyio.sleep(WITHIN + 2)
        assert (world.braked(), world.is_open()) == ([], (True, True))


async def test_each_trial_that_fails_doubles_the_pause() -> None:
    async with open_world() as world:
        await world.lose(3)
        for closings in (1, 2, 3):
            (cordon,) = world.memory.kept[CordonSource.BRAKE]
            assert cordon.closings == closings
            assert cordon.until_seconds is not None
            assert cordon.since_seconds is not None
            assert cordon.until_seconds - cordon.since_seconds == PAUSE * 2 ** (closings - 1)
            await anyio.sleep(cordon.until_seconds - world.clock.wall() + 1)
            await world.lose()
            assert world.is_open() == (True, False)


async def test_a_person_opens_the_gpu() -> None:
    """At once, and the count begins anew; while the GPU is closed and while it is to be tried."""
    async with open_world() as world:
        for pause in (0.0, PAUSE):
            await world.lose(3)
            await anyio.sleep(pause)
            assert await world.uncordon("1") == "GPU 1: the cordon is taken back"
            assert (world.is_open(), world.braked(), world.door(1).trial) == ((True, True), [], None)
            await world.lose(2)
            assert world.is_open() == (True, True)
            await world.start()
            await anyio.sleep(WITHIN + 1)
            await world.hold()
        with pytest.raises(ControlRefused, match="neither a person nor the brake has cordoned a GPU 1"):
            await world.uncordon("1")


async def test_a_persons_word_is_for_both_cordons() -> None:
    async with open_world() as world:
        await world.lose(3)
        await world.cordon("1")
        assert len(world.door(1).cordons) == 2
        assert await world.uncordon("1") == "GPU 1: the cordon is taken back"
        assert world.is_open() == (True, True)


async def test_a_restart_keeps_the_closing_the_trial_and_the_pause() -> None:
    """The pod that tries the GPU meanwhile is known by the time of its start."""
    world = BrakeWorld()
    world.bus.publish_state(TWO, source="inventory")
    world.bus.publish_state(AllocationTable(), source="allocations")
    async with world.running():
        await world.lose(3)
    async with world.running():
        assert world.is_open() == (True, False)
        await anyio.sleep(PAUSE)
    async with world.running():
        assert world.door(1).trial is not None
        await world.start()
    async with world.running():
        assert world.is_open() == (True, False)
        await world.hold()
        await world.lose()
        (cordon,) = world.memory.kept[CordonSource.BRAKE]
        assert cordon.closings == 2


async def test_refused_requests_close_the_gpu_and_those_of_the_node_all_gpus() -> None:
    """The GPUs are tried one after another."""
    async with open_world() as world:
        await world.refuse(4)
        assert world.is_open() == (True, True)
        await world.refuse()
        assert world.is_open() == (True, False)
        await world.uncordon("1")
        world.bus.publish_fact(FractionRefused(resource=RESOURCE, count=1, reason="no room"), source="test")
        world.bus.publish_fact(
            FractionRefused(resource=RESOURCE, count=1, reason="disk full", is_of_node=True), source="test"
        )
        await world.refuse(3, is_of_node=True)
        assert world.is_open() == (True, True)
        await world.refuse(is_of_node=True)
        assert world.is_open() == (False, False)
        await anyio.sleep(PAUSE)
        assert world.is_open() == (True, False)
        await anyio.sleep(WITHIN)
        assert world.is_open() == (True, True)


async def test_a_journal_that_cannot_be_written_does_not_keep_the_gpu_open() -> None:
    """The closing is written as soon as the journal can be; a person's word waits for the journal."""
    async with open_world() as world:
        world.memory.broken = True
        await world.refuse(5, is_of_node=True)
        assert world.is_open() == (False, False)
        assert CordonSource.BRAKE not in world.memory.kept
        with pytest.raises(ControlRefused):
            await world.uncordon("1")
        world.memory.broken = False
        await anyio.sleep(6)
        assert len(world.memory.kept[CordonSource.BRAKE]) == 2
        await world.uncordon("1")
        assert world.is_open() == (False, True)


async def test_a_switched_off_brake_closes_nothing_and_opens_what_it_closed() -> None:
    async with open_world() as world:
        await world.lose(3)
        await world.set_signals(SignalsSettings(brake=False))
        assert (world.is_open(), world.braked()) == ((True, True), [])
        assert world.memory.kept[CordonSource.BRAKE] == ()
        await world.lose(5)
        await world.set_signals(SignalsSettings())
        await world.lose(2)
        assert world.is_open() == (True, True)


async def test_nothing_is_decided_before_journal_and_gpus_are_known() -> None:
    world = BrakeWorld()
    world.bus.publish_state(AllocationTable(), source="allocations")
    world.bus.publish_state(TWO, source="inventory")
    world.memory.is_read = False
    async with world.running():
        await world.lose(3)
        assert world.is_open() == (True, True)
        world.bus.publish_state(Inventory(generation=7, gpus=TWO.gpus), source="inventory")
        world.memory.is_read = True
        await anyio.sleep(60)
        assert world.is_open() == (True, False)
