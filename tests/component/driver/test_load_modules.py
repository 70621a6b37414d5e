"""The driver component loads kernel modules where it is told to, on virtual time, and says why it could not."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec import structs

from nodeagent.components.driver.component import DRIVER_GATE, Driver, DriverHost
from nodeagent.components.driver.plan_markers import DriverPlace
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverEvidence, DriverPhase, DriverState, ModuleRefusal, ModuleSearch, RefusalKind
from tests.component.driver.fakes import NOT_LOADED, WORKING, FakeProbe
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

FOUND = ModuleSearch(kernel="6.8.0", file="updates/dkms/nvidia.ko", table_time=1)
LOADABLE = structs.replace(NOT_LOADED, module_search=FOUND)
BOTH = ("nvidia", "nvidia-uvm")
WHOLE = structs.replace(WORKING, unified_memory_loaded=True)


class Modprobe:
    """The port `ModuleLoader`: the probe shows what loading led to."""

    def __init__(self, probe: FakeProbe, *outcomes: tuple[str, DriverEvidence]) -> None:
        self._probe, self._outcomes = probe, list(outcomes)
        self.asked: list[tuple[str, ...]] = []

    async def load(self, modules: Sequence[str]) -> str:
        await anyio.lowlevel.checkpoint()
        self.asked.append(tuple(modules))
        problem, evidence = self._outcomes.pop(0)
        self._probe.show(evidence)
        return problem


class Surroundings:
    """A driver component on a node whose modules can be loaded."""

    def __init__(
        self,
        evidence: DriverEvidence,
        *outcomes: tuple[str, DriverEvidence],
        is_on: bool = True,
        container: bool = False,
    ) -> None:
        clock = FakeClock()
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.probe = FakeProbe(evidence)
        self.modprobe = Modprobe(self.probe, *outcomes)
        self.settings = structs.replace(DriverSettings(), load_modules=is_on)
        self.place = DriverPlace(driver_root="/run/nvidia/driver", is_host_driver=False) if container else DriverPlace()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        driver = Driver(
            self.bus,
            Gates([DRIVER_GATE], clock=FakeClock()),
            self.conditions,
            DriverHost(self.probe, read_place=lambda: self.place, modules=self.modprobe),
            lambda: self.settings,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: driver.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    @property
    def phase(self) -> DriverPhase | None:
        state = self.bus.read(DriverState)
        return state.phase if state is not None else None

    @property
    def conditions_set(self) -> list[tuple[str, str]]:
        return [(condition.code, condition.detail) for condition in self.conditions.all_set()]


async def test_a_module_that_the_kernel_has_is_loaded_before_the_start_is_told() -> None:
    """One call for both, and the driver is ready."""
    around = Surroundings(LOADABLE, ("", WHOLE))
    async with around.running():
        assert (around.modprobe.asked, around.phase) == ([BOTH], DriverPhase.READY)
        assert around.conditions_set == []


async def test_nothing_is_loaded_unless_it_is_asked_for() -> None:
    """It says what to do instead; a reload of the settings is enough to have it done."""
    around = Surroundings(LOADABLE, ("", WHOLE), is_on=False)
    async with around.running():
        assert (around.modprobe.asked, around.phase) == ([], DriverPhase.NOT_LOADED)
        ((_, detail),) = around.conditions_set
        assert detail == "kernel 6.8.0 has updates/dkms/nvidia.ko and has not loaded it"
        around.settings = structs.replace(around.settings, load_modules=True)
        await anyio.sleep(40)
        assert (around.modprobe.asked, around.phase) == ([BOTH], DriverPhase.READY)


async def test_a_driver_that_a_container_brings_is_left_to_the_container() -> None:
    around = Surroundings(LOADABLE, container=True)
    async with around.running():
        await anyio.sleep(100)
        assert around.modprobe.asked == []


async def test_what_modprobe_said_is_told_and_not_tried_again_for_the_same_table() -> None:
    """Ten minutes of looks are one attempt; a module built anew is another."""
    rebuilt = structs.replace(LOADABLE, module_search=structs.replace(FOUND, table_time=2))
    around = Surroundings(LOADABLE, ("modprobe ended with 1: No such device", LOADABLE), ("", WHOLE))
    async with around.running():
        await anyio.sleep(600)
        assert around.modprobe.asked == [BOTH]
        ((code, detail),) = around.conditions_set
        assert (code, "loading it: modprobe ended with 1: No such device" in detail) == ("driver-not-loaded", True)
        around.probe.show(rebuilt)
        await anyio.sleep(1)
        assert (around.modprobe.asked, around.phase) == ([BOTH, BOTH], DriverPhase.READY)
        assert around.conditions_set == []


async def test_the_kernels_reason_is_the_condition_after_an_attempt() -> None:
    """By then the log has the line: it is worth more than modprobe's own word."""
    line = "Loading of module with unavailable key is rejected"
    refused = structs.replace(FOUND, refusal=ModuleRefusal(kind=RefusalKind.SIGNATURE, line=line), secure_boot=True)
    around = Surroundings(LOADABLE, ("no", structs.replace(LOADABLE, module_search=refused)))
    async with around.running():
        assert around.conditions_set == [
            ("driver-signature-refused", f"Secure Boot is on, the kernel log says: {line}")
        ]
        assert around.modprobe.asked == [BOTH]


async def test_a_blacklist_is_the_reason_of_a_modprobe_that_loads_nothing() -> None:
    around = Surroundings(LOADABLE, ("", LOADABLE))
    async with around.running():
        ((_, detail),) = around.conditions_set
        assert "loading it: modprobe loaded nothing: look for `blacklist`" in detail


async def test_unified_memory_is_loaded_beside_a_driver_that_works() -> None:
    """The node is missing until then, and CUDA with it."""
    half = structs.replace(WORKING, nodes_missing=("/dev/nvidia-uvm (the module nvidia_uvm is not loaded)",))
    around = Surroundings(half, ("", WHOLE))
    async with around.running():
        assert (around.modprobe.asked, around.conditions_set) == ([("nvidia-uvm",)], [])


async def test_a_module_that_somebody_took_away_is_not_loaded_again() -> None:
    """An upgrade unloads it by hand: the agent does not come between."""
    around = Surroundings(WHOLE)
    async with around.running():
        around.probe.show(LOADABLE)
        await anyio.sleep(600)
        assert (around.modprobe.asked, around.phase) == ([], DriverPhase.NOT_LOADED)
