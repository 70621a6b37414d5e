"""The inventory component between a scripted source of GPUs and the bus, on virtual time."""

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace

from nodeagent.components.inventory.component import FIRST_SAMPLE_SECONDS, SETTLE_SECONDS
from nodeagent.components.inventory.reports import WINDOW_SECONDS
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DriverUnavailable
from nodeagent.model.events import (
    GpuEventReported,
    GpuSeenStale,
    GpuVanished,
    MigChangeEnded,
    MigLayoutChanged,
    XidReported,
)
from nodeagent.model.gpu import Inventory, MissingGpu
from nodeagent.model.telemetry import DriverAccess, NodeSample
from tests.component.inventory.harness import Stage
from tests.support.samples import make_address, make_gpu, make_mig, make_readout, make_uuid

pytestmark = pytest.mark.virtual_time


async def test_it_has_started_once_the_hardware_is_known(stage: Stage) -> None:
    """Whoever waits for the gate finds an inventory on the bus."""
    async with stage.running():
        await stage.started.wait()
        inventory = stage.inventory()
        assert inventory is not None
        assert [gpu.index for gpu in inventory.gpus] == [0, 1]


async def test_a_late_driver_is_waited_for(stage: Stage) -> None:
    """Without hardware nothing is invented; with it the inventory follows within a second."""
    stage.gpus.readout = DriverUnavailable("list GPUs", "no driver")
    async with stage.running():
        await anyio.sleep(10)
        assert stage.inventory() is None
        assert not stage.started.is_set()
        stage.gpus.readout = make_readout(make_gpu(0))
        with anyio.fail_after(1.1):
            await stage.started.wait()


async def test_a_layout_event_is_seen_at_once(stage: Stage) -> None:
    """A change of MIG layout does not wait for the next rescan."""
    async with stage.running():
        await stage.started.wait()
        with stage.bus.listen(MigLayoutChanged, client="test") as facts:
            stage.gpus.readout = make_readout(make_gpu(0, mig=make_mig(0, 7)), make_gpu(1))
            await stage.gpus.event_sender.send(GpuEventReported(gpu=make_uuid(0), kind="mig_layout"))
            with anyio.fail_after(0.5):
                fact = await anext(facts)
            assert fact.value.gpu == make_uuid(0)


@pytest.mark.parametrize(
    "said",
    [
        MigChangeEnded(gpu=make_uuid(0), layout="all-1g.10gb", outcome="done"),
        GpuSeenStale(gpu=make_uuid(0)),
    ],
)
async def test_what_was_cut_is_seen_at_once(stage: Stage, said: MigChangeEnded | GpuSeenStale) -> None:
    """Whoever cuts a GPU says so, and whoever finds it cut by others; old drivers report nothing."""
    async with stage.running():
        await stage.started.wait()
        with stage.bus.listen(MigLayoutChanged, client="test") as facts:
            stage.gpus.readout = make_readout(make_gpu(0, mig=make_mig(0, 7)), make_gpu(1))
            stage.bus.publish_fact(said, source="mig")
            with anyio.fail_after(0.5):
                fact = await anext(facts)
            assert fact.value.gpu == make_uuid(0)


async def test_a_change_without_an_event_is_found_by_the_rescan(stage: Stage) -> None:
    """What nobody reports is noticed at most one rescan later."""
    async with stage.running():
        await stage.started.wait()
        stage.gpus.readout = make_readout(make_gpu(0), make_gpu(1), make_gpu(2))
        await anyio.sleep(stage.live.now.inventory.rescan_seconds + 0.1)
        inventory = stage.inventory()
        assert inventory is not None
        assert (len(inventory.gpus), inventory.generation) == (3, 2)


async def test_a_driver_that_was_there_all_along_is_no_returned_one(stage: Stage) -> None:
    """To enumerate again at once would hold up the first sample, which pods wait for; the look soon after does not."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(SETTLE_SECONDS - 0.5)
        assert stage.gpus.readings == 1
        await anyio.sleep(1)
        assert stage.gpus.readings == 2


async def test_a_returned_driver_is_enumerated_at_once(stage: Stage) -> None:
    """After a reload of the driver nobody waits for the rescan."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(1)
        before = stage.gpus.readings
        stage.bus.publish_state(DriverState(phase=DriverPhase.NOT_LOADED), source="test")
        await anyio.sleep(0.1)
        assert stage.gpus.readings == before
        stage.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        await anyio.sleep(0.1)
        assert stage.gpus.readings == before + 1


async def test_a_failed_reading_keeps_the_last_truth(stage: Stage) -> None:
    """A driver that goes away takes no GPU off the list: the driver's own condition says what is wrong."""
    async with stage.running():
        await stage.started.wait()
        known = stage.inventory()
        there, stage.gpus.readout = stage.gpus.readout, DriverUnavailable("list GPUs", "gone")
        await anyio.sleep(100)
        assert stage.inventory() is known
        # Where the driver answers everything else, nothing but this says that the list is old.
        (detail,) = stage.details("inventory-stale")
        assert "gone" in detail
        stage.gpus.readout = there
        await anyio.sleep(stage.live.now.inventory.rescan_seconds + 0.1)
        assert stage.details("inventory-stale") == []


async def test_samples_come_at_their_pace_and_follow_a_reload(stage: Stage) -> None:
    """One a second by default, and at another pace once the settings say so."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(10)
        assert 9 <= stage.gpus.samples <= 11
        settings = stage.live.now
        stage.live.replace(replace(settings, inventory=replace(settings.inventory, sample_seconds=0.1)))
        await anyio.sleep(1)
        before = stage.gpus.samples
        await anyio.sleep(1)
        assert 9 <= stage.gpus.samples - before <= 11


async def test_stale_samples_are_said_and_forgiven(stage: Stage) -> None:
    """While sampling fails there is a condition, and none once it works again."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(1)
        stage.gpus.sampling = DriverUnavailable("sample", "hung")
        await anyio.sleep(5)
        assert stage.codes() == ["sample-stale"]
        sample = stage.bus.latest(NodeSample)
        assert sample is not None
        stage.gpus.sampling = None
        await anyio.sleep(2)
        assert stage.codes() == []


async def test_readings_are_old_after_two_periods_even_while_the_driver_only_hangs(stage: Stage) -> None:
    """A call that hangs fails seconds later: readings age meanwhile, and are said to be old when they are."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(5.5)
        stage.gpus.hang = anyio.Event()
        await anyio.sleep(1.4)
        assert stage.codes() == []
        await anyio.sleep(0.2)
        (told,) = stage.conditions.active()
        assert (told.code, told.detail) == ("sample-stale", "the newest look has not come back yet")
        stage.gpus.sampling = DriverUnavailable("sample", "hung")
        stage.gpus.hang.set()
        await anyio.sleep(0.1)
        assert "hung" in stage.details("sample-stale")[0]
        stage.gpus.sampling = None
        await anyio.sleep(1)
        assert stage.codes() == []
        await anyio.sleep(60)
        assert stage.codes() == []


async def test_one_sample_that_fails_makes_nothing_old(stage: Stage) -> None:
    """The next one comes in time."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(5.5)
        stage.gpus.sampling = DriverUnavailable("sample", "refused")
        await anyio.sleep(1)
        stage.gpus.sampling = None
        assert stage.codes() == []
        await anyio.sleep(1)
        assert stage.codes() == []


async def test_readings_that_never_come_are_said(stage: Stage) -> None:
    """Nothing is old that was never there, and all is not well either."""
    stage.gpus.sampling = DriverUnavailable("sample", "refused")
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(FIRST_SAMPLE_SECONDS - 0.1)
        assert stage.codes() == []
        await anyio.sleep(0.2)
        assert stage.codes() == ["sample-stale"]


async def test_xids_reach_the_bus_and_a_lost_stream_is_taken_up_again(stage: Stage) -> None:
    """An interruption of the events costs a second, not the events after it."""
    async with stage.running():
        await stage.started.wait()
        with stage.bus.listen(XidReported, client="test") as facts:
            await stage.gpus.event_sender.send(DriverUnavailable("watch events", "worker replaced"))
            await stage.gpus.event_sender.send(XidReported(gpu=make_uuid(0), xid=79))
            with anyio.fail_after(2):
                assert (await anext(facts)).value.xid == 79


async def test_problems_of_the_hardware_are_conditions(stage: Stage) -> None:
    """A card that the driver does not list is named, and no longer once it is gone or back."""
    stage.gpus.readout = make_readout(
        make_gpu(0), missing=(MissingGpu(address=make_address(5), device_id=0x2330, reason="excluded"),)
    )
    async with stage.running():
        await stage.started.wait()
        assert stage.codes() == ["gpu-missing"]
        stage.gpus.readout = make_readout(make_gpu(0))
        await anyio.sleep(stage.live.now.inventory.rescan_seconds + 0.1)
        assert stage.codes() == []


async def test_a_lost_gpu_goes_back_to_what_the_driver_said(stage: Stage) -> None:
    """Reports of one burst follow from its first, and what the look after them finds follows from them."""
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(5)  # past the look that follows from the driver's being ready
        with stage.bus.listen(XidReported, GpuEventReported, GpuVanished, client="test") as facts:
            stage.gpus.readout = make_readout(make_gpu(0, lost="fell off the bus"), make_gpu(1))
            await stage.gpus.event_sender.send(XidReported(gpu=make_uuid(0), xid=79))
            await stage.gpus.event_sender.send(GpuEventReported(gpu=make_uuid(0), kind="gpu_lost"))
            with anyio.fail_after(0.5):
                xid, lost, vanished = [await anext(facts) for _ in range(3)]
        inventory = stage.bus.latest(Inventory)
        assert inventory is not None
        assert (xid.cause, lost.cause) == (None, xid.seq)
        assert (inventory.cause, vanished.cause) == (lost.seq, lost.seq)


async def test_what_nobody_reported_follows_from_the_look(stage: Stage) -> None:
    """A GPU that is found gone without a word has the new inventory as its cause."""
    async with stage.running():
        await stage.started.wait()
        with stage.bus.listen(GpuVanished, client="test") as facts:
            stage.gpus.readout = make_readout(make_gpu(0))
            fact = await anext(facts)
        inventory = stage.bus.latest(Inventory)
        assert inventory is not None
        assert fact.cause == inventory.seq


async def test_a_card_that_came_is_looked_for_within_two_seconds(stage: Stage) -> None:
    """What the bus shows is part of the driver's state; the card may need a moment until the driver lists it."""
    async with stage.running():
        await stage.started.wait()
        ready = DriverState(phase=DriverPhase.READY)
        stage.bus.publish_state(ready, source="test")
        await anyio.sleep(5)
        stage.bus.publish_state(replace(ready, pci_gpus=(make_address(2),)), source="test")
        await anyio.sleep(0.5)
        stage.gpus.readout = make_readout(make_gpu(0), make_gpu(1), make_gpu(2))
        await anyio.sleep(1.5)
        inventory = stage.inventory()
        assert inventory is not None
        assert len(inventory.gpus) == 3


async def test_a_worker_that_cannot_be_ended_is_a_condition(stage: Stage) -> None:
    """It holds the driver: people must know before they try to reload it, and no longer once it is gone."""
    async with stage.running():
        await stage.started.wait()
        stage.gpus.access = DriverAccess(left_behind=(4711,))
        await anyio.sleep(2)
        assert stage.codes() == ["nvml-worker-left-behind"]
        stage.gpus.access = DriverAccess()
        await anyio.sleep(2)
        assert stage.codes() == []


async def test_a_worker_that_is_replaced_again_and_again_is_a_condition(stage: Stage) -> None:
    """Although every sample comes; and no longer once it has worked for a while."""
    async with stage.running():
        await stage.started.wait()
        stage.gpus.access = DriverAccess(worker_died=1)
        await anyio.sleep(2)
        stage.gpus.access = DriverAccess(worker_died=4)
        await anyio.sleep(2)
        assert stage.details("nvml-worker-restarts") == ["replaced 4 times because it ended, 0 times because it hung"]
        await anyio.sleep(WINDOW_SECONDS + 1)
        assert stage.codes() == []
