"""How long the runtime component waits for a restarted runtime, and how long for the next restart; on virtual time."""

import anyio
import pytest

from tests.component.runtime.fakes import MAIN, START, FakeRuntime
from tests.component.runtime.surroundings import COMMAND, Surroundings

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("slow", ["took", "busy", "hanging"])
async def test_a_slow_start_is_not_rolled_back(slow: str) -> None:
    """Where it was as slow before, and where it gets on, though its service manager takes all of that time."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    around.runtime.silent_seconds = 50.0
    around.runtime.took_seconds = 45.0 if slow == "took" else 0.0
    around.runtime.busy_share = 0.0 if slow == "took" else 0.5
    around.runtime.hanging_seconds = 50.0 if slow == "hanging" else 0.0
    async with around.running():
        await anyio.sleep(60)
        assert b"enable_cdi = true" in around.runtime.files[MAIN]
        assert (len(around.runtime.restarts), around.found) == (1, {})


@pytest.mark.parametrize("hanging", [0.0, 10_000.0])
async def test_a_start_that_does_not_get_on_is_rolled_back_in_time(hanging: float) -> None:
    """Within what the settings say, whether the daemon or the command of its service manager hangs."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now", restart_timeout_seconds=20.0)
    around.runtime.silent_seconds, around.runtime.hanging_seconds = 10_000.0, hanging
    began = anyio.current_time()
    around.runtime.silent_seconds = 0.0 if hanging else 10_000.0
    async with around.running():
        first, second = around.runtime.restarts
        assert second - first == pytest.approx(20.0, abs=1.5)
        assert anyio.current_time() - began < (45.0 if hanging else 25.0)
        assert around.runtime.files[MAIN] == START
        word = f"`{COMMAND}` is still at it" if hanging else "answer"
        assert word in around.found["runtime-restart-failed"]


async def test_processes_that_cannot_be_seen_are_no_progress() -> None:
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    around.runtime.silent_seconds, around.runtime.busy_share = 50.0, 0.5
    around.runtime.hides_processes = True
    async with around.running():
        assert len(around.runtime.restarts) == 2
        assert "runtime-restart-failed" in around.found


async def test_against_another_writer_it_is_not_restarted_again_and_again() -> None:
    """One restart instead of four within a minute; the setting waits for the end of a pause that grows."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now", repairs_per_hour=60)

    async def meddle() -> None:
        while anyio.current_time() < 50:
            await anyio.sleep(1)
            around.runtime.meddle(START)
            around.runtime.forget_start()

    began = anyio.current_time()
    async with anyio.create_task_group() as tasks, around.running_beside(meddle, tasks):
        await anyio.sleep(50)
        assert len(around.runtime.restarts) == 1
        assert around.found == {"runtime-restart-needed": COMMAND}
        await anyio.sleep(20)
        assert around.found == {}
        assert [time - began for time in around.runtime.restarts] == pytest.approx([0.0, 60.0], abs=2.0)
        tasks.cancel_scope.cancel()


async def test_a_person_does_not_wait_for_the_pause() -> None:
    """Whoever changes the settings has it restarted at once."""
    around = Surroundings(FakeRuntime(), manage=True, restart="now")
    async with around.running():
        around.runtime.meddle(START)
        around.runtime.forget_start()
        await anyio.sleep(5)
        assert around.found == {"runtime-restart-needed": COMMAND}
        around.configure(restart_timeout_seconds=20.0)
        await anyio.sleep(1)
        assert (len(around.runtime.restarts), around.found) == (2, {})
