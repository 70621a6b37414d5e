"""The inventory component between a scripted source of GPUs and the bus, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace

from nodeagent.components.inventory.component import FIRST_SAMPLE_SECONDS, InventoryComponent
from nodeagent.components.inventory.expected import LABEL
from nodeagent.components.inventory.relay import ForgettingRelay
from nodeagent.components.inventory.restarts import WINDOW_SECONDS
from nodeagent.components.inventory.roster import ROSTER_VERSION
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, DriverError, DriverUnavailable
from nodeagent.model.events import (
    ConfigurationReloaded,
    GpuEventReported,
    GpuForgotten,
    GpuVanished,
    MigChangeEnded,
    MigLayoutChanged,
    XidReported,
)
from nodeagent.model.gpu import GpuReadout, Inventory, MissingGpu
from nodeagent.model.ports import GpuEvent
from nodeagent.model.telemetry import DriverAccess, NodeSample
from tests.support.gpu_store import open_gpu_store
from tests.support.samples import make_address, make_gpu, make_mig, make_readout, make_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


class ScriptedGpus:
    """A source that answers what the test put there."""

    def __init__(self) -> None:
        self.readout: GpuReadout | DriverError = make_readout(make_gpu(0), make_gpu(1))
        self.sampling: DriverError | None = None
        self.hang: anyio.Event | None = None
        self.access: DriverAccess | None = None
        self.readings = self.samples = 0
        self.event_sender, self._events = anyio.create_memory_object_stream[GpuEvent | DriverError](16)

    async def read_inventory(self) -> GpuReadout:
        self.readings += 1
        if isinstance(self.readout, DriverError):
            raise self.readout
        return self.readout

    async def read_sample(self) -> NodeSample:
        self.samples += 1
        if self.hang is not None:
            await self.hang.wait()
        if self.sampling is not None:
            raise self.sampling
        return NodeSample(time_seconds=float(self.samples), access=self.access)

    async def events(self) -> AsyncIterator[GpuEvent]:
        while True:
            event = await self._events.receive()
            if isinstance(event, DriverError):
                raise event
            yield event

    async def release(self, reason: str) -> None:
        raise AssertionError("the inventory never releases")

    async def resume(self) -> None:
        raise AssertionError("the inventory never resumes")

    def close(self) -> None:
        self.event_sender.close()
        self._events.close()


class Stage:
    """The component with everything round it."""

    def __init__(self, clock: FakeClock, state_dir: Path) -> None:
        self.clock, self.state_dir, self.relay = clock, state_dir, ForgettingRelay()
        self.bus = Bus(clock)
        self.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings())
        self.gpus = ScriptedGpus()
        self.started = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        store = open_gpu_store(self.state_dir)
        component = InventoryComponent(self.bus, self.conditions, self.clock, self.gpus, self.live, store, self.relay)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, component)
            yield
            tasks.cancel_scope.cancel()
        self.gpus.close()

    async def _run(self, component: InventoryComponent) -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            self.started.set()

    def inventory(self) -> Inventory | None:
        envelope = self.bus.latest(Inventory)
        return envelope.value if envelope is not None else None

    def details(self, code: str) -> list[str]:
        return [condition.detail for condition in self.conditions.all_set() if condition.code == code]

    def codes(self) -> list[str]:
        return [condition.code for condition in self.conditions.all_set()]


@pytest.fixture
def stage(clock: FakeClock, tmp_path: Path) -> Stage:
    return Stage(clock, tmp_path)


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


async def test_what_was_cut_is_seen_at_once(stage: Stage) -> None:
    """Whoever cuts a GPU says so; old drivers report nothing."""
    async with stage.running():
        await stage.started.wait()
        with stage.bus.listen(MigLayoutChanged, client="test") as facts:
            stage.gpus.readout = make_readout(make_gpu(0, mig=make_mig(0, 7)), make_gpu(1))
            ended = MigChangeEnded(gpu=make_uuid(0), layout="all-1g.10gb", outcome="done")
            stage.bus.publish_fact(ended, source="mig")
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
        stage.gpus.readout = DriverUnavailable("list GPUs", "gone")
        await anyio.sleep(100)
        assert stage.inventory() is known


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


async def test_a_gpu_that_vanished_is_missed_until_a_person_says_that_it_is_gone(stage: Stage) -> None:
    """Whether the agent saw it go or was away at the time; who says so is told."""
    async with stage.running():
        await stage.started.wait()
    again = Stage(stage.clock, stage.state_dir)
    again.gpus.readout = make_readout(make_gpu(0))
    async with again.running():
        await again.started.wait()
        assert make_uuid(1) in again.details("gpu-vanished")[0]
        with pytest.raises(ControlRefused, match="no GPU 0 is missed: GPU 1"):
            await again.relay.forget_gpu("0", "me")
        with again.bus.listen(GpuForgotten, client="test") as facts:
            assert "gone for good" in await again.relay.forget_gpu("1", "me")
            assert (await anext(facts)).value == GpuForgotten(gpu=make_uuid(1), who="me")
        assert again.codes() == []
    with pytest.raises(ControlRefused, match="not known yet"):
        await again.relay.forget_gpu("1", "me")
    third = Stage(stage.clock, stage.state_dir)
    third.gpus.readout = make_readout(make_gpu(0))
    async with third.running():
        await third.started.wait()
        assert third.codes() == []


async def test_a_gpu_is_forgotten_also_while_the_driver_is_away(stage: Stage) -> None:
    """The word of a person does not depend on a driver, and outlives the agent."""
    async with stage.running():
        await stage.started.wait()
        stage.gpus.readout = make_readout(make_gpu(0))
        await anyio.sleep(stage.live.now.inventory.rescan_seconds + 0.1)
        assert stage.codes() == ["gpu-vanished"]
        stage.gpus.readout = DriverUnavailable("list GPUs", "gone")
        await stage.relay.forget_gpu(make_uuid(1), "me")
    again = Stage(stage.clock, stage.state_dir)
    again.gpus.readout = make_readout(make_gpu(0))
    async with again.running():
        await again.started.wait()
        assert again.codes() == []


async def test_gpus_that_are_all_gone_are_missed_although_no_driver_will_be_ready(stage: Stage) -> None:
    """By an agent that was started without them; until the driver has looked nothing is said."""
    async with stage.running():
        await stage.started.wait()
    again = Stage(stage.clock, stage.state_dir)
    again.gpus.readout = again.gpus.sampling = DriverUnavailable("list GPUs", "no library")
    again.bus.retract_state(DriverState, source="test")
    async with again.running():
        await anyio.sleep(5)
        assert again.codes() == []
        again.bus.publish_state(DriverState(phase=DriverPhase.NOT_LOADED), source="test")
        await anyio.sleep(5)
        assert again.codes() == []
        again.bus.publish_state(DriverState(phase=DriverPhase.NO_HARDWARE), source="test")
        await again.started.wait()
        assert "2 GPUs were here until 2026-01-01 00:00 UTC: GPU 0 (" in again.details("gpus-all-gone")[0]
        assert [one.code for one in again.conditions.active()] == ["gpus-all-gone"]
        await anyio.sleep(60)
        assert again.gpus.samples == 0
        again.gpus.readout, again.gpus.sampling = make_readout(make_gpu(0), make_gpu(1)), None
        again.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        await anyio.sleep(1.5)
        assert again.codes() == []
        assert again.gpus.samples


async def test_a_node_without_gpus_waits_until_somebody_says_that_it_should_have_some(stage: Stage) -> None:
    """What was never there is missed by the cluster's word alone."""
    stage.bus.publish_state(DriverState(phase=DriverPhase.NO_HARDWARE), source="test")
    stage.gpus.readout = DriverUnavailable("list GPUs", "no library")
    async with stage.running():
        await anyio.sleep(60)
        assert (stage.codes(), stage.gpus.readings) == ([], 0)
        stage.bus.publish_state(ClusterNode(name="node-1", uid="uid-1", labels={LABEL: "8"}), source="test")
        await stage.started.wait()
        assert stage.details("gpus-fewer-than-expected") == [f"8 by the node label {LABEL}, 0 found"]


async def test_the_number_of_gpus_may_be_told_by_configuration(stage: Stage) -> None:
    """Fewer are an error at once; as many as there should be excuse one that has gone."""

    async def expect(count: int | None) -> None:
        settings = stage.live.now
        stage.live.replace(replace(settings, gpus=replace(settings.gpus, expected=count)))
        stage.bus.publish_fact(ConfigurationReloaded(changed=("gpus.expected",)), source="test")
        await anyio.sleep(0.1)

    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(0.1)
        await expect(3)
        assert stage.details("gpus-fewer-than-expected") == ["3 by `gpus.expected`, 2 found"]
        await expect(None)
        assert stage.codes() == []
        stage.gpus.readout = make_readout(make_gpu(0))
        await anyio.sleep(stage.live.now.inventory.rescan_seconds + 0.1)
        assert stage.codes() == ["gpu-vanished"]
        await expect(1)
        assert stage.codes() == []


async def test_the_number_of_gpus_may_be_told_by_a_label_of_the_node(stage: Stage) -> None:
    """At once, whenever it changes; a slip is said, and followed by nobody. Other labels look at nothing anew."""

    async def label(**labels: str) -> None:
        named = {LABEL if name == "expected" else name: value for name, value in labels.items()}
        stage.bus.publish_state(ClusterNode(name="node-1", uid="uid-1", labels=named), source="test")
        await anyio.sleep(0.1)

    async with stage.running():
        await stage.started.wait()
        await label(expected="3")
        assert stage.details("gpus-fewer-than-expected") == [f"3 by the node label {LABEL}, 2 found"]
        await anyio.sleep(5)
        before = stage.gpus.readings
        await label(expected="3", other="new")
        assert stage.gpus.readings == before
        await label(expected="three")
        assert stage.codes() == ["gpus-expected-label-unreadable"]
        await label()
        assert stage.codes() == []
        settings = stage.live.now
        stage.live.replace(replace(settings, gpus=replace(settings.gpus, expected=2)))
        await label(expected="3")
        assert stage.codes() == []


async def test_the_label_is_remembered_over_a_restart_without_an_api_server(stage: Stage) -> None:
    """Its number holds until the node is seen again; one that was taken off meanwhile holds no longer then."""
    async with stage.running():
        await stage.started.wait()
        stage.bus.publish_state(ClusterNode(name="node-1", uid="uid-1", labels={LABEL: "3"}), source="test")
        await anyio.sleep(0.1)
    again = Stage(stage.clock, stage.state_dir)
    async with again.running():
        await again.started.wait()
        assert again.details("gpus-fewer-than-expected") == [
            f"3 by the node label {LABEL} as it was last seen, 2 found"
        ]
        again.bus.publish_state(ClusterNode(name="node-1", uid="uid-1"), source="test")
        await anyio.sleep(0.1)
        assert again.codes() == []
    third = Stage(stage.clock, stage.state_dir)
    async with third.running():
        await third.started.wait()
        assert third.codes() == []


async def test_a_list_that_is_damaged_is_said_and_begun_anew(stage: Stage) -> None:
    """The agent goes on with what it sees, and says what it can no longer know."""
    (stage.state_dir / "gpus.json").write_bytes(b"nodeagent-gpus 1 3 beef\nabc")
    async with stage.running():
        await stage.started.wait()
        assert "gpus.json.aside.1" in stage.details("gpus-list-lost")[0]
    again = Stage(stage.clock, stage.state_dir)
    async with again.running():
        await again.started.wait()
        assert again.codes() == []


async def test_a_list_that_means_nothing_is_moved_aside(stage: Stage) -> None:
    """Bytes that are whole and no list of this version are as good as none."""
    file = SealedFile(stage.state_dir / "gpus.json", "nodeagent-gpus", ROSTER_VERSION)
    await anyio.to_thread.run_sync(file.write, b'{"gpus": 3}')
    async with stage.running():
        await stage.started.wait()
        assert "moved to gpus.json.aside.1" in stage.details("gpus-list-lost")[0]


async def test_a_disk_that_refuses_is_said_until_it_takes_the_list(stage: Stage) -> None:
    """A GPU that vanished during a restart would not be missed: people should know before."""
    stage.state_dir /= "not there yet"
    async with stage.running():
        await stage.started.wait()
        assert stage.codes() == ["gpus-not-remembered"]
        stage.state_dir.mkdir()
        await anyio.sleep(stage.live.now.inventory.rescan_seconds + 0.1)
        assert stage.codes() == []


async def test_the_gpus_of_another_source_are_not_missed(stage: Stage) -> None:
    """A node that was simulated yesterday has not lost its made-up GPUs."""
    async with stage.running():
        await stage.started.wait()
    again = Stage(stage.clock, stage.state_dir)
    again.live.replace(Settings(gpus=GpusSettings(source="simulated:t4")))
    again.gpus.readout = make_readout(make_gpu(0))
    async with again.running():
        await again.started.wait()
        assert again.codes() == []


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
