"""The driver component on virtual time, with fakes around it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.driver.component import DRIVER_GATE, Driver, DriverHost
from nodeagent.components.driver.plan_markers import DRIVER_READY, DriverPlace, render_driver_marker
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import Degraded
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState, NodeRepair, WorkloadResult
from nodeagent.model.events import DriverChanged
from tests.component.driver.fakes import (
    NO_HARDWARE,
    NOT_LOADED,
    UPGRADED,
    WORKING,
    FakeMarkers,
    FakeNodes,
    FakeProbe,
)
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

MARKER = render_driver_marker(DriverPlace())


class Surroundings:
    def __init__(self, probe: FakeProbe, **settings: Any) -> None:
        clock = FakeClock()
        self.bus = Bus(clock)
        self.gates = Gates([DRIVER_GATE], clock=clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.probe, self.nodes, self.markers = probe, FakeNodes(), FakeMarkers()
        self.settings = replace(DriverSettings(), **settings)

    def build(self) -> Driver:
        return Driver(
            self.bus,
            self.gates,
            self.conditions,
            DriverHost(self.probe, self.nodes, self.markers),
            lambda: self.settings,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: self.build().run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    async def change_to(self, evidence: DriverEvidence) -> Envelope[DriverChanged]:
        """The fact of the change, which comes within a second."""
        with self.bus.listen(DriverChanged, client="test") as changes:
            self.probe.show(evidence)
            with anyio.fail_after(1):
                return await anext(aiter(changes))

    def read_phase(self) -> DriverPhase:
        envelope = self.bus.latest(DriverState)
        assert envelope is not None
        return envelope.value.phase

    @property
    def codes(self) -> list[str]:
        return [condition.code for condition in self.conditions.all_set()]

    @property
    def trouble(self) -> str:
        envelope = self.bus.latest(Degraded, "driver")
        return envelope.value.reason if envelope else ""


async def test_working_driver_opens_the_gate() -> None:
    """The first READY is published, opens the gate, and leaves no condition."""
    around = Surroundings(FakeProbe(WORKING))
    async with around.running():
        assert (around.read_phase(), around.gates.is_open(DRIVER_GATE), around.codes) == (DriverPhase.READY, True, [])


async def test_missing_driver_is_said_and_waited_for() -> None:
    """Without a driver the component has started all the same, the gate is closed and a condition says why."""
    around = Surroundings(FakeProbe(NOT_LOADED))
    async with around.running():
        assert (around.read_phase(), around.gates.is_open(DRIVER_GATE)) == (DriverPhase.NOT_LOADED, False)
        assert around.codes == ["driver-not-loaded"]
        around.probe.show(WORKING)
        with anyio.fail_after(1):
            await around.gates.wait_open(DRIVER_GATE)
        assert (around.read_phase(), around.codes) == (DriverPhase.READY, [])


async def test_lost_driver_is_said_within_a_second() -> None:
    """A driver that goes away changes the state and is a fact with its cause; the gate only orders the start."""
    around = Surroundings(FakeProbe(WORKING))
    async with around.running():
        change = await around.change_to(NOT_LOADED)
        state = around.bus.latest(DriverState)
        assert state is not None
        assert change.value == DriverChanged(
            before=DriverPhase.READY, after=DriverPhase.NOT_LOADED, detail=state.value.detail
        )
        assert change.cause == state.seq
        assert (around.codes, around.gates.is_open(DRIVER_GATE)) == (["driver-not-loaded"], True)
        assert around.conditions.all_set()[0].cause == state.seq


async def test_other_reason_replaces_the_condition() -> None:
    """There is one driver condition at a time, the newest reason."""
    around = Surroundings(FakeProbe(NOT_LOADED))
    async with around.running():
        around.probe.show(NO_HARDWARE)
        await anyio.sleep(0.1)
        assert around.codes == ["driver-no-hardware"]


async def test_new_version_is_a_fact() -> None:
    """An upgrade that keeps the driver ready is a change all the same."""
    around = Surroundings(FakeProbe(WORKING))
    async with around.running():
        change = await around.change_to(UPGRADED)
        assert (change.value.before, change.value.after) == (DriverPhase.READY, DriverPhase.READY)


async def test_unchanged_driver_is_no_fact() -> None:
    """Looking again and finding the same says nothing new; neither does a restart of the component."""
    around = Surroundings(FakeProbe(WORKING))
    with around.bus.listen(DriverChanged, client="test") as changes:
        for _ in range(2):
            async with around.running():
                await anyio.sleep(100)
        with anyio.move_on_after(1) as silence:
            await anext(aiter(changes))
    assert silence.cancelled_caught


async def test_driver_is_looked_at_again_for_ever() -> None:
    """A change that no watch notices is found at the next regular look."""
    around = Surroundings(FakeProbe(WORKING), revalidate_seconds=30.0)
    async with around.running():
        around.probe.show_silently(NOT_LOADED)
        await anyio.sleep(29)
        assert around.read_phase() is DriverPhase.READY
        await anyio.sleep(2)
        assert around.read_phase() is DriverPhase.NOT_LOADED


async def test_failing_driver_is_looked_at_sooner() -> None:
    """After a failure began the looks come soon, then ever less often up to the regular pause."""
    around = Surroundings(FakeProbe(NOT_LOADED), revalidate_seconds=10.0)
    async with around.running():
        began = around.probe.looked_at[0]
        await anyio.sleep(40)
    assert [round(when - began) for when in around.probe.looked_at] == [0, 1, 3, 7, 15, 25, 35]


async def test_reloaded_settings_take_effect_at_the_next_look() -> None:
    around = Surroundings(FakeProbe(WORKING), revalidate_seconds=30.0, manage_device_nodes=False)
    async with around.running():
        assert around.nodes.rounds == 0
        around.settings = replace(around.settings, manage_device_nodes=True, revalidate_seconds=5.0)
        await anyio.sleep(41)
        assert around.nodes.rounds == 3


async def test_nodes_that_cannot_be_repaired_degrade_the_component() -> None:
    """Failed repairs are said until they succeed."""
    around = Surroundings(FakeProbe(WORKING))
    around.nodes.repair_result = NodeRepair(done=("create /dev/nvidia0",), failed=("cannot create /dev/nvidia1",))
    async with around.running():
        assert around.trouble == "cannot create /dev/nvidia1"
        around.nodes.repair_result = NodeRepair()
        await anyio.sleep(31)
        assert around.trouble == ""


async def test_markers_are_left_alone_unless_asked_for() -> None:
    """By default no file is written, and a foreign one is not removed."""
    around = Surroundings(FakeProbe(NOT_LOADED))
    around.markers.files[DRIVER_READY] = "foreign"
    async with around.running():
        around.probe.show(WORKING)
        await anyio.sleep(100)
        assert around.markers.files == {DRIVER_READY: "foreign"}


async def test_marker_is_there_exactly_while_the_driver_is_ready() -> None:
    """It comes with READY and goes with it, each within a second."""
    around = Surroundings(FakeProbe(NOT_LOADED), validation_markers=True)
    around.markers.files[DRIVER_READY] = "stale, from before the reboot"
    async with around.running():
        for evidence, files in ((None, {}), (WORKING, {DRIVER_READY: MARKER}), (NOT_LOADED, {})):
            if evidence is not None:
                around.probe.show(evidence)
            await anyio.sleep(1)
            assert around.markers.files == files


@pytest.mark.parametrize("content", [None, "changed"])
async def test_marker_is_restored_within_a_second(content: str | None) -> None:
    """Whoever deletes or changes it, it is put back; one that is right is not written again."""
    around = Surroundings(FakeProbe(WORKING), validation_markers=True)
    async with around.running():
        await anyio.sleep(1)
        assert around.markers.writes == 1
        around.markers.meddle(DRIVER_READY, content)
        await anyio.sleep(1)
        assert (around.markers.files, around.markers.writes) == ({DRIVER_READY: MARKER}, 2)


async def test_marker_that_cannot_be_written_is_tried_again() -> None:
    """A full disk degrades the component until it heals."""
    around = Surroundings(FakeProbe(WORKING), validation_markers=True)
    around.markers.broken = "cannot write driver-ready"
    async with around.running():
        await anyio.sleep(1)
        assert around.trouble == "cannot write driver-ready"
        around.markers.broken = ""
        await anyio.sleep(6)
        assert (around.trouble, around.markers.files) == ("", {DRIVER_READY: MARKER})


async def test_markers_can_be_switched_on_by_a_reload() -> None:
    """The next look after the reload writes them."""
    around = Surroundings(FakeProbe(WORKING))
    async with around.running():
        await anyio.sleep(1)
        around.settings = replace(around.settings, validation_markers=True)
        await anyio.sleep(31)
        assert around.markers.files == {DRIVER_READY: MARKER}


async def test_markers_of_workloads_follow_the_validation() -> None:
    """They come when the pod has passed, go when its result is void, and are another's where no pod validates."""
    around = Surroundings(FakeProbe(WORKING), validation_markers=True, workload_validation=True)
    async with around.running():
        around.bus.publish_state(WorkloadResult(passed=True), source="test")
        await anyio.sleep(1)
        assert around.markers.files == {DRIVER_READY: MARKER, "cuda-ready": "", "plugin-ready": ""}
        around.bus.retract_state(WorkloadResult)
        await anyio.sleep(1)
        assert around.markers.files == {DRIVER_READY: MARKER}
        around.settings = replace(around.settings, workload_validation=False)
        around.markers.meddle("cuda-ready", "")
        await anyio.sleep(1)
        assert around.markers.files == {DRIVER_READY: MARKER, "cuda-ready": ""}


async def test_two_troubles_are_both_said() -> None:
    """Nodes and markers can fail at the same time; each ends by itself."""
    around = Surroundings(FakeProbe(WORKING), validation_markers=True)
    around.nodes.repair_result = NodeRepair(failed=("no node",))
    around.markers.broken = "no marker"
    async with around.running():
        await anyio.sleep(1)
        assert around.trouble == "no node; no marker"
        around.markers.broken = ""
        await anyio.sleep(6)
        assert around.trouble == "no node"


async def test_component_without_nodes_and_markers_just_looks() -> None:
    """Simulated hardware has neither device nodes nor markers."""
    around = Surroundings(FakeProbe(WORKING), validation_markers=True)
    driver = Driver(around.bus, around.gates, around.conditions, DriverHost(around.probe), lambda: around.settings)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: driver.run(task_status=task_status))
        await anyio.sleep(100)
        tasks.cancel_scope.cancel()
    assert (around.read_phase(), around.nodes.rounds, around.markers.files) == (DriverPhase.READY, 0, {})
