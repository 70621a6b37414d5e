"""The way back from a restart that failed: all that it tried, nothing else, and once."""

import anyio
import pytest

from nodeagent.model.allocation import AllocationTable
from nodeagent.model.runtime import CdiState
from tests.component.runtime.fakes import MAIN, START, FakeRuntime
from tests.component.runtime.surroundings import Surroundings
from tests.component.runtime.test_runtime import HELD

pytestmark = pytest.mark.virtual_time


async def test_a_runtime_that_is_slow_to_come_back_is_not_restarted_again() -> None:
    """It does not answer when it is looked at after the way back, and what failed is still what failed."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    around.runtime.breaks_when_restarted = True
    around.runtime.silent_seconds = 5.0
    async with around.running():
        await anyio.sleep(3)
        assert set(around.found) == {"runtime-restart-failed", "runtime-not-found"}
        await anyio.sleep(3600)
        assert around.runtime.files[MAIN] == START
        assert (around.runtime.writes, len(around.runtime.restarts)) == (1, 2)
        assert set(around.found) == {"runtime-restart-failed", "runtime-cdi-off"}
        around.runtime.breaks_when_restarted = False
        around.runtime.meddle(START + b"# mended\n")
        await anyio.sleep(10)
        assert around.found == {}


async def test_all_that_was_written_since_the_last_restart_is_rolled_back() -> None:
    """The first of two writes may be the one that does not work."""
    around = Surroundings(FakeRuntime(), manage=True, restart="when_idle", shim=True)
    around.bus.publish_state(HELD, source="allocations")
    around.runtime.breaks_when_restarted = True
    async with around.running():
        around.bus.publish_state(CdiState(generation=1, shim="/shim"), source="cdi")
        await anyio.sleep(1)
        assert (around.runtime.writes, around.runtime.restarts) == (2, [])
        around.bus.publish_state(AllocationTable(), source="allocations")
        await anyio.sleep(1)
        assert around.runtime.files[MAIN] == START
        assert around.runtime.alive


async def test_what_a_restart_has_proved_is_not_rolled_back() -> None:
    """Whoever restarted it: what was written after that goes, and nothing else."""
    around = Surroundings(FakeRuntime(), manage=True, restart="when_idle", shim=True)
    around.bus.publish_state(HELD, source="allocations")
    async with around.running():
        proved = around.runtime.files[MAIN]
        around.runtime.forget_start()
        await anyio.sleep(31)
        around.bus.publish_state(CdiState(generation=1, shim="/shim"), source="cdi")
        await anyio.sleep(1)
        assert around.runtime.writes == 2
        around.runtime.ignores_cdi = True
        around.bus.publish_state(AllocationTable(), source="allocations")
        await anyio.sleep(60)
        assert around.runtime.files[MAIN] == proved
