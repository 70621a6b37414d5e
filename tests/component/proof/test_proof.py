"""Idle-time proving between the journal, verdicts and the clock: what a node's GPUs get, and what is told of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.proof.binding_task import BindingCluster
from nodeagent.components.proof.component import FAILED, NOT_KEPT, SLOW, Proof
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import ProofSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.proof import (
    GIVEN_UP,
    GpuProofs,
    PatternPass,
    ProofPlan,
    ProofRecord,
    ProofStage,
    ProofVerdict,
    ProverReadings,
    Speed,
    SpeedKind,
)
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from tests.support.files.memory_store import MemoryStore
from tests.support.gpus import gpu_uuid, make_node
from tests.support.repairs import READY, see_quiet
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

NODE = make_node(2)
FREE_SECONDS, PROOF_SECONDS, DAY = 60.0, 2.0, 86400.0
GOOD = ProverReadings(patterns=(PatternPass(where="memory", size_bytes=64, seed=1, mask=0),))
BAD = ProverReadings(patterns=(PatternPass(where="memory", size_bytes=64, seed=1, mask=0, wrong=1),))


class Prover:
    """Takes its time, as GPUs do."""

    def __init__(self) -> None:
        self.readings: dict[str, ProverReadings] = {}
        self.begun: list[str] = []
        self.killed: list[str] = []

    async def prove(self, gpu: str, plan: ProofPlan) -> ProverReadings:
        assert not plan.with_peers
        self.begun.append(gpu)
        try:
            await anyio.sleep(PROOF_SECONDS)
        except anyio.get_cancelled_exc_class():
            self.killed.append(gpu)
            raise
        return self.readings.get(gpu, GOOD)


class World:
    """One life of the agent; the file outlives it."""

    cluster: BindingCluster | None = None

    def __init__(self, clock: FakeClock, store: MemoryStore | None = None) -> None:
        self.clock, self.bus = clock, Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.prover, self.store = Prover(), store or MemoryStore()
        self.live = LiveSettings(Settings(proof=ProofSettings(idle="quick", spread_seconds=0.0)))
        self.failed: list[str] = []
        quiet = see_quiet(NODE)
        known = (quiet.inventory, READY, quiet.health, quiet.offering)
        for state in (*known, quiet.allocations, quiet.fractions, quiet.claims):
            assert state is not None
            self.bus.publish_state(state, source="test")
        self.show_processes()

    @asynccontextmanager
    async def running(self, seconds: float = FREE_SECONDS + 1) -> AsyncIterator["World"]:
        component = Proof(
            self.bus, self.conditions, self.clock, self.live, self.prover, self.store, "node", self.cluster
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await anyio.sleep(seconds)
            yield self
            tasks.cancel_scope.cancel()

    async def _listen(self) -> None:
        with self.bus.listen(GpuEventReported, client="test") as facts:
            async for envelope in facts:
                assert envelope.value.kind == "proof_failed"
                self.failed.append(envelope.value.gpu)

    def allocate(self, *indexes: int) -> None:
        devices = tuple(DeviceId(gpu_uuid(index)) for index in indexes)
        one = Allocation(number=1, resource=ResourceName("nvidia.com/gpu"), devices=devices, since_seconds=0.0)
        self.bus.publish_state(AllocationTable(allocations=(one,) if devices else ()), source="test")

    def show_processes(self, *indexes: int) -> None:
        processes = {index: (ProcessSample(pid=7),) for index in indexes}
        gpus = [GpuSample(uuid=gpu.uuid, processes=processes.get(gpu.index, ())) for gpu in NODE.gpus]
        self.bus.publish_state(NodeSample(time_seconds=0.0, gpus=tuple(gpus)), source="test")

    @property
    def state(self) -> GpuProofs:
        found = self.bus.read(GpuProofs)
        assert found is not None
        return found

    def details(self, code: str) -> list[str]:
        return [one.detail for one in self.conditions.all_set() if one.code == code]


async def test_free_gpus_are_proven_one_after_the_other_and_again_a_day_later(clock: FakeClock) -> None:
    async with World(clock).running() as world:
        assert (world.prover.begun, world.state.proving) == ([gpu_uuid(0)], gpu_uuid(0))
        await anyio.sleep(2 * PROOF_SECONDS)
        assert (world.prover.begun, world.state.proving) == ([gpu_uuid(0), gpu_uuid(1)], None)
        assert world.state.counts == {ProofVerdict.PASSED: 2}
        newest = world.state.gpus[gpu_uuid(0)].newest_pass
        assert newest is not None
        assert newest[0] is ProofStage.QUICK
        assert newest[1] == pytest.approx(clock.wall() - 3)
        await anyio.sleep(DAY - 60)
        assert len(world.prover.begun) == 2
        await anyio.sleep(61)
        assert len(world.prover.begun) == 4


async def test_a_pod_gets_the_gpu_and_the_prover_is_killed_at_once(clock: FakeClock) -> None:
    """The proof counts as none, and is tried again after an hour."""
    async with World(clock).running() as world:
        world.allocate(0)
        await anyio.sleep(0.01)
        assert world.prover.killed == [gpu_uuid(0)]
        record = world.state.gpus[gpu_uuid(0)]
        assert (record.is_given_up, record.newest_pass, world.failed) == (True, None, [])
        assert world.state.counts == {GIVEN_UP: 1}
        await anyio.sleep(10)
        assert world.prover.begun == [gpu_uuid(0), gpu_uuid(1)]
        world.allocate()
        await anyio.sleep(3500)
        assert len(world.prover.begun) == 2
        await anyio.sleep(100)
        assert world.prover.begun == [gpu_uuid(0), gpu_uuid(1), gpu_uuid(0)]


async def test_a_pod_on_another_gpu_leaves_the_proof_alone(clock: FakeClock) -> None:
    async with World(clock).running() as world:
        world.allocate(1)
        await anyio.sleep(PROOF_SECONDS)
        assert (world.prover.killed, world.state.counts) == ([], {ProofVerdict.PASSED: 1})


async def test_a_released_driver_has_no_prover(clock: FakeClock) -> None:
    async with World(clock).running() as world:
        world.bus.publish_state(DriverState(phase=DriverPhase.RELEASED), source="test")
        await anyio.sleep(0.01)
        assert world.prover.killed == [gpu_uuid(0)]


async def test_a_gpu_is_free_for_a_minute_before_it_is_proven(clock: FakeClock) -> None:
    """A process without a pod makes the minute begin anew."""
    world = World(clock)
    world.show_processes(0)
    async with world.running(FREE_SECONDS - 1):
        world.allocate(1)
        await anyio.sleep(10)
        assert world.prover.begun == []
        world.allocate()
        world.show_processes()
        await anyio.sleep(FREE_SECONDS - 15)
        assert world.prover.begun == []
        await anyio.sleep(20)
        assert world.prover.begun == [gpu_uuid(0), gpu_uuid(1)]


async def test_without_a_sample_nothing_is_proven(clock: FakeClock) -> None:
    world = World(clock)
    world.bus.retract_state(NodeSample, source="test")
    async with world.running(10 * FREE_SECONDS):
        assert world.prover.begun == []


async def test_a_gpu_that_fails_is_reported_with_the_check(clock: FakeClock) -> None:
    world = World(clock)
    world.prover.readings[gpu_uuid(0)] = BAD
    async with world.running(FREE_SECONDS + 2 * PROOF_SECONDS + 1):
        assert world.failed == [gpu_uuid(0)]
        (detail,) = world.details(FAILED)
        assert detail.startswith("GPU 0: memory: 1 word of 8 wrong")
        world.prover.readings.clear()
        await anyio.sleep(300)
        assert world.details(FAILED) == []


async def test_a_slow_gpu_is_told_of_and_keeps_its_pods(clock: FakeClock) -> None:
    world = World(clock)
    slow = ("was slow", "was slow")
    record = ProofRecord(verdict=ProofVerdict.PASSED, ended_seconds=0.0, took_seconds=2.0, slow=slow)
    world.store = MemoryStore(json.encode({gpu_uuid(1): record}))
    async with world.running(1):
        assert world.details(SLOW) == ["GPU 1: was slow"]
        assert world.failed == []


async def test_the_next_agent_takes_the_proofs_up(clock: FakeClock) -> None:
    """Without those of GPUs that the node has no more."""
    async with World(clock).running(FREE_SECONDS + 10) as first:
        kept = first.state.gpus
    async with World(clock, first.store).running(10 * FREE_SECONDS) as second:
        assert (second.state.gpus, second.prover.begun) == (kept, [])
        second.bus.publish_state(replace(NODE, gpus=NODE.gpus[:1]), source="test")
        await anyio.sleep(DAY)
        assert second.state.gpus.keys() == {gpu_uuid(0)}


async def test_speeds_are_compared_with_other_gpus_of_the_model(clock: FakeClock) -> None:
    four = make_node(4)
    world = World(clock)
    for state in (four, see_quiet(four).health, see_quiet(four).offering):
        assert state is not None
        world.bus.publish_state(state, source="test")
    samples = tuple(GpuSample(uuid=gpu.uuid) for gpu in four.gpus)
    world.bus.publish_state(NodeSample(time_seconds=0.0, gpus=samples), source="test")
    for gpu in four.gpus:
        speed = Speed(kind=SpeedKind.CLOCK, values=(1000.0 if gpu.index == 3 else 1980.0,))
        world.prover.readings[gpu.uuid] = replace(GOOD, speeds=(speed,))
    async with world.running(FREE_SECONDS + 10):
        assert world.state.gpus[gpu_uuid(3)].slow == ("SM clock: 1000 MHz",)
        assert world.details(SLOW) == []
        await anyio.sleep(DAY + 20)
        assert world.details(SLOW) == ["GPU 3: SM clock: 1000 MHz"]


@pytest.mark.parametrize("body", [b"{}", b"nonsense"])
async def test_a_damaged_file_is_moved_aside_and_a_full_disk_is_told(clock: FakeClock, body: bytes) -> None:
    """Neither keeps GPUs from being proven."""
    world = World(clock, MemoryStore(body))
    world.store.failure, world.store.troubles = "no space left on device", ("one copy is damaged",)
    async with world.running(FREE_SECONDS + PROOF_SECONDS + 1):
        assert bool(world.store.discarded) is (body != b"{}")
        assert world.details(NOT_KEPT) == ["no space left on device"]
        world.store.failure = ""
        await anyio.sleep(PROOF_SECONDS + 1)
        assert world.details(NOT_KEPT) == []


async def test_without_an_inventory_nothing_is_known(clock: FakeClock) -> None:
    world = World(clock)
    world.bus.retract_state(Inventory, source="test")
    async with world.running(10 * FREE_SECONDS):
        assert (world.prover.begun, world.state) == ([], GpuProofs())
