import os
import signal
import subprocess
import sys
import threading
from typing import Any

import anyio
import pytest

from nodeagent.core.life.shutdown import HARD_EXIT_CODE, ExitWatchdog, Shutdown
from tests.support.waiting import PATIENCE_SECONDS, wait_until


class Calls(list[str]):
    """What was called, in order."""

    def shutdown(self, watchdog: ExitWatchdog) -> Shutdown:
        return Shutdown(
            on_stop=lambda: self.append("stop"),
            on_force=lambda: self.append("force"),
            on_reload=lambda: self.append("reload"),
            watchdog=watchdog,
        )


async def test_signals_reload_then_stop_then_force() -> None:
    """SIGHUP asks for new settings, the first ending signal stops, any further one forces."""
    calls = Calls()
    with calls.shutdown(ExitWatchdog(PATIENCE_SECONDS)) as shutdown:
        async with anyio.create_task_group() as tasks:
            await tasks.start(shutdown.run)
            for number, sent in enumerate((signal.SIGHUP, signal.SIGTERM, signal.SIGINT), start=1):
                os.kill(os.getpid(), sent)
                await wait_until(lambda wanted=number: len(calls) == wanted)  # type: ignore[misc]  # bound per turn
            tasks.cancel_scope.cancel()
    assert calls == ["reload", "stop", "force"]


async def test_stop_can_be_asked_for_without_a_signal(log_lines: list[dict[str, Any]]) -> None:
    """Whatever else ends the process takes the same way, and says why."""
    calls = Calls()
    with calls.shutdown(ExitWatchdog(PATIENCE_SECONDS)) as shutdown:
        shutdown.stop("vital component failed")
    assert calls == ["stop"]
    assert log_lines[0]["reason"] == "vital component failed"


async def test_watchdog_exits_hard_past_the_total(capfd: pytest.CaptureFixture[str]) -> None:
    """A stop that does not end is ended, with one line that says so."""
    codes: list[int] = []
    watchdog = ExitWatchdog(0.01, exit_process=codes.append)
    watchdog.start()
    watchdog.arm()
    watchdog.arm()
    await wait_until(lambda: codes)
    assert codes == [HARD_EXIT_CODE]
    watchdog.disarm()


async def test_disarmed_watchdog_does_nothing() -> None:
    """A stop in time leaves no thread behind and exits nothing."""
    codes: list[int] = []
    watchdog = ExitWatchdog(PATIENCE_SECONDS, exit_process=codes.append)
    watchdog.start()
    watchdog.arm()
    watchdog.arm()
    watchdog.disarm()
    watchdog.arm()
    watchdog.disarm()
    await wait_until(lambda: "exit-watchdog" not in [thread.name for thread in threading.enumerate()])
    assert codes == []


def test_process_whose_loop_hangs_exits_with_the_documented_code() -> None:
    """The watchdog needs nothing of the loop: a process that blocks it still ends."""
    code = (
        "import anyio, time\n"
        "from nodeagent.core.life.shutdown import ExitWatchdog, Shutdown\n"
        "nothing = lambda: None\n"
        "async def main():\n"
        "    watchdog = ExitWatchdog(0.05)\n"
        "    with Shutdown(on_stop=nothing, on_force=nothing, on_reload=nothing, watchdog=watchdog) as shutdown:\n"
        "        shutdown.stop('test')\n"
        "        time.sleep(60)\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == HARD_EXIT_CODE
    assert "not stopped after 0.05 s; exiting hard with status 70" in done.stderr


HANGING = """
import anyio, os, signal, sys, time
from nodeagent.core.life.shutdown import ExitWatchdog, Shutdown
nothing = lambda: None
async def main():
    watchdog = ExitWatchdog(0.05)
    with Shutdown(on_stop=nothing, on_force=nothing, on_reload=nothing, watchdog=watchdog) as shutdown:
        async with anyio.create_task_group() as tasks:
            await tasks.start(shutdown.run)
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(0.01)
anyio.run(main)
"""


def test_the_time_runs_from_the_signal_on() -> None:
    """And not from when the loop, which may have much to do, hears of it."""
    done = subprocess.run(
        [sys.executable, "-c", HANGING], check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert (done.returncode, "not stopped after 0.05 s" in done.stderr) == (HARD_EXIT_CODE, True)
