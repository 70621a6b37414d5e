"""One GPU is carried from any layout to any other, or back, whatever fails and whoever is killed."""

from random import Random

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.mig.carry import Carrier, End
from nodeagent.model.gpu import ComputeMode, Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import GpuPartitions, Write, WriteKind
from nodeagent.model.ports import PartitionSession
from nodeagent.rules.mig.change import OWNER, Intent, Outcome, Progress, back_step, begin_step, read_progress
from nodeagent.rules.mig.partitions import is_met
from nodeagent.rules.mig.steps import Goal
from nodeagent.rules.mig.wanted import Wanted
from nodeagent_sim.gpus.source import SimulatedGpus
from tests.component.mig.harness import PROFILES, Book
from tests.support.gpus import make_gpu
from tests.support.mig import list_feasible, partitions_of, request
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

H100 = "h100-sxm5-80gb"
EMPTY, OFF, LAYOUTS = partitions_of(H100), partitions_of(H100, enabled=False), list_feasible(H100)
FAILING = [*WriteKind]


class Hand:
    """One simulated GPU, its journal, and whoever changes it."""

    def __init__(self, clock: FakeClock, profile: str = "dgx-h100") -> None:
        self.gpus, self.book = SimulatedGpus(PROFILES[profile], clock=clock), Book()
        self.gpus.set_holders({})
        self.told: list[Write] = []
        self.kill_at_call = 0
        """The call before which the agent is killed; 0 for none."""

    async def find_gpu(self) -> Gpu:
        return (await self.gpus.read_inventory()).gpus[0]

    async def read(self) -> GpuPartitions:
        async with self.gpus.begin() as session:
            return await session.read(await self.find_gpu())

    async def carry(self, session: PartitionSession, number: int, progress: Progress) -> End:
        carrier = Carrier(self.book, session, self._tell, lambda: 0.0)
        end = await carrier.carry(await self.find_gpu(), number, progress)
        await self.book.settle_change(number, end.outcome)
        return end

    def _tell(self, write: Write) -> None:
        self.told.append(write)
        if len(self.told) == self.kill_at_call:
            self.book.kill()

    async def change(self, wanted: Wanted) -> End | None:
        """From the beginning; nothing where the agent was killed."""
        with anyio.CancelScope() as scope:
            self.book.kill = scope.cancel
            async with self.gpus.begin() as session:
                gpu = await self.find_gpu()
                intent = Intent(layout="x", wanted=wanted, before=await session.read(gpu))
                number = await self.book.begin_change(OWNER, gpu.uuid, begin_step(intent, 0.0))
                return await self.carry(session, number, Progress(intent=intent))
        return None

    async def resume(self) -> End:
        """What the next life of the agent does."""
        (change,) = self.book.changes(OWNER) or ()
        async with self.gpus.begin() as session:
            return await self.carry(session, change.number, read_progress(change))


@pytest.mark.parametrize(
    "seed", [11, *(pytest.param(seed, marks=[pytest.mark.nightly, pytest.mark.timeout(300)]) for seed in range(5))]
)
async def test_random_pairs_end_in_the_old_or_the_new_layout(clock: FakeClock, seed: int) -> None:
    """With one call that fails, or a kill at any step, or both; nothing is left under way."""
    random = Random(seed)
    hand = Hand(clock)
    await anyio.sleep(1)
    for _ in range(150):
        before = await hand.read()
        names = random.choice(LAYOUTS)
        wanted = request(" ".join(names)) if random.random() < 0.9 else Wanted(enabled=False)
        hand.book = Book()
        hand.told.clear()
        hand.book.kill_at, hand.kill_at_call = random.choice(
            [(0, 0), (random.randrange(1, 4), 0), (0, random.randrange(1, 12))]
        )
        if random.random() < 0.5:
            await hand.gpus.inject("mig-refuse", [random.choice(FAILING)])
        end = await hand.change(wanted)
        if end is None:
            end = await hand.resume()
        after = await hand.read()
        assert end.outcome in {Outcome.DONE, Outcome.UNDONE}, end
        assert (
            Goal(wanted=wanted).is_reached(after)
            if end.outcome is Outcome.DONE
            else Goal(before=before).is_reached(after)
        )
        assert not hand.book.under_way
        await hand.gpus.inject("mig-refuse", ["none"])


async def test_a_change_that_was_on_its_way_back_goes_on_back(clock: FakeClock) -> None:
    """Nobody asks for the layout a second time over a failure that is known."""
    hand = Hand(clock)
    await anyio.sleep(1)
    gpu = await hand.find_gpu()
    intent = Intent(layout="x", wanted=request("7g.80gb"), before=await hand.read())
    await hand.change(Wanted(enabled=True))
    number = await hand.book.begin_change(OWNER, gpu.uuid, begin_step(intent, 0.0))
    await hand.book.step_change(number, back_step("it failed", 0.0))
    assert await hand.resume() == End(outcome=Outcome.UNDONE, detail="it failed")
    assert not (await hand.read()).enabled


class Stubborn:
    """A GPU that says yes to everything and changes nothing."""

    def __init__(self, partitions: GpuPartitions) -> None:
        self.partitions = partitions

    async def read(self, _gpu: Gpu) -> GpuPartitions:
        return self.partitions

    async def write(self, _gpu: Gpu, _write: Write) -> int:
        return 0

    async def read_compute_mode(self, _gpu: Gpu) -> ComputeMode:
        raise AssertionError("who may use a GPU is nothing to a layout")

    async def set_compute_mode(self, _gpu: Gpu, _mode: ComputeMode) -> None:
        raise AssertionError("who may use a GPU is nothing to a layout")

    async def set_time_slice(self, _gpu: Gpu, _number: int) -> None:
        raise AssertionError("nor is how long")


async def carry_stubborn(there: GpuPartitions, wanted: Wanted) -> End:
    book, told = Book(), list[Write]()
    intent = Intent(layout="x", wanted=wanted, before=there)
    number = await book.begin_change(OWNER, GpuUuid("GPU-x"), begin_step(intent, 0.0))
    carrier = Carrier(book, Stubborn(there), told.append, lambda: 0.0)
    return await carrier.carry(make_gpu(0), number, Progress(intent=intent))


async def test_a_driver_that_does_nothing_is_told() -> None:
    """It refuses nothing, and the GPU is as it was."""
    end = await carry_stubborn(EMPTY, request("7g.80gb"))
    assert end.outcome is Outcome.UNDONE
    assert end.detail == "GPU 0 is not as it shall be although the driver refused nothing"


async def test_a_mode_that_no_reset_brings_about_waits_for_a_boot() -> None:
    """As in a virtual machine whose GPU cannot be reset."""
    there = replace(OFF, pending=True)
    end = await carry_stubborn(there, request("7g.80gb"))
    assert end == End(outcome=Outcome.REBOOT, detail="a reset did not bring its new MIG mode into force")


async def test_a_gpu_that_is_right_already_costs_no_call(clock: FakeClock) -> None:
    """Somebody may have been quicker."""
    hand = Hand(clock)
    await anyio.sleep(1)
    assert await hand.change(Wanted(enabled=False)) == End(outcome=Outcome.DONE)
    assert hand.told == []
    assert is_met(Wanted(enabled=False), await hand.read())
