"""What happens when the library misbehaves: hangs, crashes, lost GPUs. The others must not notice for long."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.core.errors import ThreadStuck
from nodeagent.edge.nvml.agent.client import NvmlGpus
from nodeagent.model.driver import PciFunction
from nodeagent.model.errors import DriverError, DriverStuck, DriverUnavailable
from tests.component.edge_nvml.harness import STRICT, running_gpus, worker_pid
from tests.fakes.nvml.control import FakeNvml
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

FREEZER = Path("/sys/fs/cgroup/freezer")


async def wait_until_sampled(gpus: NvmlGpus, *, lost: set[int], seconds: float = 30.0) -> None:
    """Sample until exactly these GPUs are lost."""
    with anyio.fail_after(seconds):
        while True:
            try:
                sample = await gpus.read_sample()
            except DriverError:
                await anyio.sleep(0.02)
                continue
            if {index for index, one in enumerate(sample.gpus) if one.lost} == lost:
                return
            await anyio.sleep(0.05)


@pytest.mark.long
async def test_a_hung_gpu_costs_the_others_one_deadline(fake: FakeNvml) -> None:
    """The sample in which it hangs has all other GPUs, and says of the hung one what happened."""
    async with running_gpus(fake, STRICT) as gpus:
        await gpus.read_sample()
        fake.hang_gpu(3)
        sample = await gpus.read_sample()
        assert [index for index, one in enumerate(sample.gpus) if one.lost] == [3]
        assert sample.gpus[3].lost == "sampling GPU 3 did not come back within 1.5 s"
        assert all(one.gpu_temperature_celsius == 29 for one in sample.gpus if not one.lost)


@pytest.mark.long
async def test_a_suspect_is_left_alone_and_then_asked_again(fake: FakeNvml) -> None:
    """Right after a hang it is not asked at all; later it is, and is trusted again once it answers."""
    async with running_gpus(fake, STRICT) as gpus:
        await gpus.read_sample()
        fake.hang_gpu(0)
        await gpus.read_sample()
        before = fake.calls(gpu=0)
        await gpus.read_sample()
        assert fake.calls(gpu=0) == before
        fake.clear()
        await wait_until_sampled(gpus, lost=set())
        sample = await gpus.read_sample()
        assert [one.lost for one in sample.gpus] == [""] * 8


@pytest.mark.long
async def test_a_gpu_that_hangs_for_ever_leaves_the_others_fresh(fake: FakeNvml) -> None:
    """Over several seconds of sampling, every sample has the seven good GPUs."""
    async with running_gpus(fake, STRICT) as gpus:
        await gpus.read_sample()
        fake.hang_gpu(7)
        until = time.monotonic() + 6
        while time.monotonic() < until:
            sample = await gpus.read_sample()
            assert [index for index, one in enumerate(sample.gpus) if one.lost] == [7]
            await anyio.sleep(0.05)


@pytest.mark.long
async def test_an_inventory_with_a_hung_gpu_keeps_its_identity(fake: FakeNvml) -> None:
    """It stays in the list as it was last known, with the reason."""
    async with running_gpus(fake, STRICT) as gpus:
        known = await gpus.read_inventory()
        fake.hang_gpu(2)
        readout = await gpus.read_inventory()
    assert [gpu.uuid for gpu in readout.gpus] == [gpu.uuid for gpu in known.gpus]
    assert [gpu.index for gpu in readout.gpus if gpu.lost] == [2]
    assert "did not come back" in readout.gpus[2].lost
    assert len(readout.pairs) == 28


async def test_a_gpu_that_never_answered_is_missing_by_index(fake: FakeNvml) -> None:
    """Without an identity it cannot be a GPU of the list, but it is not forgotten either."""
    fake.fail("nvmlDeviceGetHandleByIndex_v2", 999, gpu=4)
    async with running_gpus(fake) as gpus:
        readout = await gpus.read_inventory()
    assert len(readout.gpus) == 7
    (missing,) = readout.missing
    assert missing.reason.startswith("GPU at index 4: nvmlDeviceGetHandleByIndex_v2: ")


@pytest.mark.long
async def test_a_gpu_that_hangs_from_the_beginning_is_missing_until_it_answers(fake: FakeNvml) -> None:
    """By its index, which is all that is known of it; the others are listed after one deadline."""
    fake.hang_gpu(3)
    async with running_gpus(fake, STRICT, call_timeout_seconds=2.0) as gpus:
        readout = await gpus.read_inventory()
        assert [gpu.index for gpu in readout.gpus] == [0, 1, 2, 4, 5, 6, 7]
        (missing,) = readout.missing
        assert missing.reason == "GPU at index 3: enumerating GPU 3 did not come back within 2 s"
        fake.clear()
        with anyio.fail_after(30):
            while readout.missing:
                await anyio.sleep(0.1)
                readout = await gpus.read_inventory()
        assert [gpu.index for gpu in readout.gpus] == list(range(8))


@pytest.mark.long
async def test_all_gpus_hung_is_an_error(fake: FakeNvml) -> None:
    """When nobody answers there is no sample to give."""
    async with running_gpus(fake, STRICT, warm_timeout_seconds=0.1, leash_seconds=0.1) as gpus:
        await gpus.read_sample()
        for index in range(8):
            fake.hang_gpu(index)
        with pytest.raises(DriverStuck, match="did not come back"):
            await gpus.read_sample()
        fake.clear()
        await wait_until_sampled(gpus, lost=set())


@pytest.mark.long
async def test_a_gpu_that_must_wake_up_gets_the_time(fake: FakeNvml) -> None:
    """Without persistence mode the first answer to a new worker may be slow; that is no hang."""
    for index in range(8):
        fake.gpu(index).persistence_mode = 0
    async with running_gpus(fake, STRICT) as gpus:
        await gpus.read_sample()
        fake.hang_gpu(1)  # which costs the worker its life, so that GPU 2 is the first to be asked by the next one
        fake.delay("nvmlDeviceGetPowerUsage", 1.8, gpu=2)
        sample = await gpus.read_sample()
        assert [index for index, one in enumerate(sample.gpus) if one.lost] == [1]


@pytest.mark.long
async def test_the_watch_and_the_fabric_leave_out_a_silent_gpu(fake: FakeNvml) -> None:
    """Whatever is asked of all GPUs is answered for those that answer."""
    async with running_gpus(fake, STRICT) as gpus:
        await gpus.read_inventory()
        for index in range(8):
            fake.gpu(index).fabric_state = 2
        fake.hang("nvmlDeviceGetGpuFabricInfoV", gpu=4)
        assert len(await gpus.read_fabric_pending()) == 7


@pytest.mark.long
async def test_unreadable_paths_are_asked_for_again(fake: FakeNvml) -> None:
    """A hang between two GPUs leaves the pair with what NUMA tells, until it can be read."""
    async with running_gpus(fake, STRICT) as gpus:
        fake.hang("nvmlDeviceGetTopologyCommonAncestor", gpu=0)
        readout = await gpus.read_inventory()
        assert len(readout.pairs) == 28
        fake.clear()
        await wait_until_sampled(gpus, lost=set())
        before = fake.calls("nvmlDeviceGetTopologyCommonAncestor")
        await gpus.read_inventory()
        assert fake.calls("nvmlDeviceGetTopologyCommonAncestor") > before


@pytest.mark.long
async def test_a_hung_start_is_the_drivers_not_a_gpus(fake: FakeNvml) -> None:
    """When the initialisation hangs every question fails with its name, and all is well once it does not hang."""
    fake.hang("nvmlInitWithFlags")
    async with running_gpus(fake, STRICT, open_timeout_seconds=2) as gpus:
        with pytest.raises(DriverStuck, match="initialising NVML"):
            await gpus.read_sample()
        with pytest.raises(DriverStuck, match="initialising NVML"):
            await gpus.read_answer()
        fake.clear()
        await wait_until_sampled(gpus, lost=set())


@pytest.mark.long
async def test_a_start_that_hangs_later_is_no_gpus_fault(fake: FakeNvml) -> None:
    """A new worker that cannot initialise says so, and blames nobody that it has not come to."""
    async with running_gpus(fake, STRICT, open_timeout_seconds=2) as gpus:
        await gpus.read_sample()
        fake.hang_gpu(0)
        fake.hang("nvmlInitWithFlags")
        with pytest.raises(DriverStuck, match="initialising NVML"):
            await gpus.read_sample()
        fake.clear()
        await wait_until_sampled(gpus, lost=set())


async def test_no_gpu_that_answers_is_an_error(fake: FakeNvml) -> None:
    """A node whose only GPUs were never reached has no sample."""
    for index in range(8):
        fake.lose(index)
    async with running_gpus(fake) as gpus:
        assert len((await gpus.read_inventory()).missing) == 8
        with pytest.raises(DriverUnavailable, match=r"GPU at index 0: .*fell off the bus"):
            await gpus.read_sample()


async def test_enumerations_wait_for_each_other(fake: FakeNvml) -> None:
    """Several at once find the same, each whole."""
    found: list[int] = []
    async with running_gpus(fake) as gpus:

        async def enumerate_once() -> None:
            found.append(len((await gpus.read_inventory()).gpus))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(enumerate_once)
            assert len((await gpus.read_sample()).gpus) == 8
    assert found == [8, 8, 8]


async def test_a_crash_in_the_library_is_survived(fake: FakeNvml) -> None:
    """A segmentation fault over one GPU costs workers their lives, and the agent nothing but that GPU's sample."""
    async with running_gpus(fake) as gpus:
        await gpus.read_sample()
        before = worker_pid(gpus)
        fake.crash("nvmlDeviceGetPowerUsage", gpu=5)
        sample = await gpus.read_sample()
        assert [index for index, one in enumerate(sample.gpus) if one.lost] == [5]
        assert "SIGSEGV" in sample.gpus[5].lost
        fake.clear()
        await wait_until_sampled(gpus, lost=set())
        assert worker_pid(gpus) != before


@pytest.mark.long
async def test_a_crash_at_start_is_an_answer(fake: FakeNvml) -> None:
    """A library that kills whoever initialises it is reported, again and again, with growing pauses."""
    fake.crash("nvmlInitWithFlags", with_signal=signal.SIGABRT)
    async with running_gpus(fake) as gpus:
        for _ in range(3):
            answer = await gpus.read_answer()
            assert answer.code == -1
        fake.clear()
        await wait_until_sampled(gpus, lost=set())


async def test_a_lost_gpu_is_named_and_comes_back(fake: FakeNvml) -> None:
    """Lost, it says so in samples and inventories and hides nobody; after a reset it is read again."""
    async with running_gpus(fake) as gpus:
        await gpus.read_inventory()
        await gpus.read_sample()
        fake.lose(6)
        await wait_until_sampled(gpus, lost={6})
        readout = await gpus.read_inventory()
        assert [gpu.index for gpu in readout.gpus if gpu.lost] == [6]
        assert "fell off the bus" in readout.gpus[6].lost
        assert len(readout.gpus) == 8
        fake.restore(6)
        await gpus.read_inventory()
        await wait_until_sampled(gpus, lost=set())
        assert not any(gpu.lost for gpu in (await gpus.read_inventory()).gpus)


async def test_a_reset_under_the_worker_gives_fresh_handles(fake: FakeNvml) -> None:
    """Handles from before a reset are stale: the worker makes way for a new one within one sample."""
    async with running_gpus(fake) as gpus:
        await gpus.read_sample()
        before = worker_pid(gpus)
        fake.restore(1)
        sample = await gpus.read_sample()
        assert [one.lost for one in sample.gpus] == [""] * 8
        assert sample.gpus[1].gpu_temperature_celsius == 29
        assert worker_pid(gpus) != before


async def test_gpus_come_and_go(fake: FakeNvml) -> None:
    """An unplugged GPU is gone from the next inventory, although the indices of the others change; then it is back."""
    async with running_gpus(fake) as gpus:
        known = [gpu.uuid for gpu in (await gpus.read_inventory()).gpus]
        fake.unplug(2)
        without = [gpu.uuid for gpu in (await gpus.read_inventory()).gpus]
        assert without == known[:2] + known[3:]
        assert [one.uuid for one in (await gpus.read_sample()).gpus] == without
        fake.plug(2)
        assert [gpu.uuid for gpu in (await gpus.read_inventory()).gpus] == known


async def test_an_unreadable_datum_is_named_on_its_gpu_only(fake: FakeNvml) -> None:
    """One call that fails on one GPU leaves the rest of that GPU and all of the others as they were."""
    fake.fail("nvmlDeviceGetPowerUsage", 999, gpu=0)
    fake.fail("nvmlDeviceGetSerial", 4, gpu=0)
    async with running_gpus(fake) as gpus:
        gpu, other = (await gpus.read_inventory()).gpus[:2]
        one, neighbour = (await gpus.read_sample()).gpus[:2]
    assert [mark.what for mark in gpu.unreadable] == ["serial"]
    assert [mark.what for mark in one.unreadable] == ["power_milliwatts"]
    assert (one.power_milliwatts, one.gpu_temperature_celsius) == (None, 29)
    assert other.unreadable == neighbour.unreadable == ()


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A control group whose processes sleep uninterruptibly while it is frozen."""
    group = FREEZER / f"nodeagent-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no writable version 1 freezer here: {error}")
    yield group
    for pid in (group / "cgroup.procs").read_text().split():  # whatever became of the test that froze it
        os.kill(int(pid), signal.SIGKILL)
    (group / "freezer.state").write_text("THAWED")
    until = time.monotonic() + 10
    while (group / "cgroup.procs").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    group.rmdir()


@pytest.mark.long
async def test_a_worker_that_cannot_be_killed_is_left_behind(fake: FakeNvml, freezer: Path) -> None:
    """Asleep in the driver it takes no signal: the next worker starts beside it, and it is counted."""
    async with running_gpus(fake, STRICT) as gpus:
        await gpus.read_sample()
        stuck = worker_pid(gpus)
        (freezer / "cgroup.procs").write_text(str(stuck))
        (freezer / "freezer.state").write_text("FROZEN")
        await wait_until_sampled(gpus, lost=set())  # it was asking nobody when it was frozen: nobody is blamed
        statistics = gpus.statistics()
        assert statistics is not None
        assert statistics.left_behind == (stuck,)
        assert worker_pid(gpus) != stuck
        (freezer / "freezer.state").write_text("THAWED")
        await wait_until(lambda: is_gone(gpus, stuck))


def is_gone(gpus: NvmlGpus, pid: int) -> bool:
    """Whether a worker that was left behind has ended and was reaped."""
    statistics = gpus.statistics()
    return statistics is not None and pid not in statistics.left_behind


class Bus:
    """The PCI bus beside the fake driver."""

    def __init__(self, fake: FakeNvml, count: int) -> None:
        self.fake, self.count, self.is_readable = fake, count, True

    async def list_functions(self) -> list[PciFunction]:
        if not self.is_readable:
            raise ThreadStuck("driver probe", "listing the GPUs on the PCI bus", 2.0)
        seats = self.fake.profile.seats[: self.count]
        return [PciFunction(address=seat.address, device_id=1, bound_driver="nvidia") for seat in seats]


async def test_a_card_that_came_is_seen_by_a_new_session(fake: FakeNvml) -> None:
    """NVML lists what was there when it began: a card on the bus that it does not list gets a fresh worker at once."""
    fake.unplug(7)
    fake.state.lists_at_start = 1
    bus = Bus(fake, 7)
    async with running_gpus(fake, list_functions=bus.list_functions) as gpus:
        assert len((await gpus.read_inventory()).gpus) == 7
        before = worker_pid(gpus)
        fake.plug(7)
        bus.count = 8
        readout = await gpus.read_inventory()
        assert (len(readout.gpus), readout.missing) == (8, ())
        assert worker_pid(gpus) != before


async def test_a_card_that_stays_unlisted_is_missing_by_its_address(fake: FakeNvml) -> None:
    """One fresh worker is tried for it, not one at each enumeration; a bus that cannot be read hides nothing."""
    fake.unplug(7)
    bus = Bus(fake, 8)
    async with running_gpus(fake, list_functions=bus.list_functions) as gpus:
        (missing,) = (await gpus.read_inventory()).missing
        assert (missing.address, missing.reason) == (fake.profile.seats[7].address, "the driver does not list it")
        before = worker_pid(gpus)
        assert (await gpus.read_inventory()).missing == (missing,)
        assert worker_pid(gpus) == before
        bus.is_readable = False
        assert len((await gpus.read_inventory()).gpus) == 7


async def test_an_integrated_gpu_is_refused_by_name(fake: FakeNvml) -> None:
    """Boards with an integrated GPU list it by a name of its own; it has no place on the bus and no device nodes."""
    fake.gpu(2).name = b"Orin (nvgpu)"
    async with running_gpus(fake) as gpus:
        readout = await gpus.read_inventory()
    assert len(readout.gpus) == 7
    assert "Orin (nvgpu) is an integrated GPU" in readout.missing[0].reason
