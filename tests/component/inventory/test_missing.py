"""GPUs that are no longer there are missed, until somebody says that they are gone or how many there should be."""

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace

from nodeagent.components.inventory.expected import LABEL
from nodeagent.components.inventory.gpu_store import GPU_STORE_VERSION
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused, DriverUnavailable
from nodeagent.model.events import (
    ConfigurationReloaded,
    GpuForgotten,
)
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import EventWatch
from tests.component.inventory.harness import Stage
from tests.support.samples import make_gpu, make_readout, make_uuid
from tests.support.waiting import wait_until

pytestmark = pytest.mark.virtual_time


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
            await again.forget("0")
        with again.bus.listen(GpuForgotten, client="test") as facts:
            assert "gone for good" in await again.forget("1")
            assert (await anext(facts)).value == GpuForgotten(gpu=make_uuid(1), who="me")
        assert again.codes() == []
    with pytest.raises(ControlRefused, match="not known yet"):
        await again.forget("1")
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
        await stage.forget(make_uuid(1))
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
    file = SealedFile(stage.state_dir / "gpus.json", "nodeagent-gpus", GPU_STORE_VERSION)
    await anyio.to_thread.run_sync(file.write, b'{"gpus": 3}')
    async with stage.running():
        await stage.started.wait()
        assert "moved to gpus.json.aside.1" in stage.details("gpus-list-lost")[0]


async def test_a_disk_that_refuses_is_said_until_it_takes_the_list(stage: Stage) -> None:
    """A GPU that vanished during a restart would not be missed: people should know before."""
    stage.state_dir /= "not there yet"
    async with stage.running():
        await stage.started.wait()
        await wait_until(lambda: stage.codes() == ["gpus-not-remembered"])  # nobody else waits for the disk
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


async def test_a_node_that_does_without_gpus_is_known_to_have_none(stage: Stage) -> None:
    """Nobody is asked for readings or reports, and nothing is said to be old."""
    stage.bus.publish_state(DriverState(phase=DriverPhase.NO_HARDWARE, is_needed=False), source="test")
    stage.gpus.readout = DriverUnavailable("list GPUs", "no library")
    async with stage.running():
        await stage.started.wait()
        await anyio.sleep(60)
        assert (stage.codes(), stage.gpus.samples) == ([], 0)
        inventory = stage.bus.latest(Inventory)
        assert inventory is not None
        assert inventory.value.gpus == ()
        assert stage.bus.latest(EventWatch) is None
