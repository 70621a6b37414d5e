"""Which files of the agent an answer to the kubelet goes through, in a simulation that runs.

`python -m tests.architecture.house.crossings FILE ARGUMENT...` runs the command line with those arguments and writes,
for each of the kubelet's calls, the files whose code has run within it. `measure_crossings` starts that and reads FILE.
"""

import contextvars
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import nodeagent
from nodeagent.edge.kubelet.plugin_server import PluginServer
from tests.support.programs.agent_process import command_environment

PATIENCE_SECONDS: Final = 60.0
CALLS: Final = ("_allocate", "_pre_start")
CONFIGURATION: Final = """
fractions: {enabled: true, enforcement: library}
doors: {rules: [{gpus: "0,1,2,3", door: fractions}]}
"""


class Recorder:
    """The files whose code runs within a call, told apart by the context that the call's tasks and threads inherit."""

    def __init__(self, report: Path) -> None:
        self.report = report
        self.files: dict[str, set[str]] = {}
        self._call: contextvars.ContextVar[str | None] = contextvars.ContextVar("call", default=None)
        self._root = str(Path(nodeagent.__file__).parent) + os.sep

    def follow(self, frame: FrameType, _event: str, _argument: object) -> None:
        """What `sys.setprofile` calls at each start and end of a function."""
        call = self._call.get()
        name = frame.f_code.co_filename
        if call is not None and name.startswith(self._root):
            self.files.setdefault(call, set()).add(name.removeprefix(self._root))

    def watch(self, name: str, handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The handler with everything recorded that runs within it."""

        async def watched(server: PluginServer, request: Any) -> Any:
            # The resource tells whole GPUs from fractions.
            token = self._call.set(f"{name.strip('_')} {server._plugin.resource}")
            try:
                return await handler(server, request)
            finally:
                self._call.reset(token)
                self.write()

        return watched

    def write(self) -> None:
        """Make the report whole at once, as its reader may come at any time."""
        made = self.report.with_suffix(".new")
        made.write_text(json.dumps({call: sorted(files) for call, files in self.files.items()}), encoding="utf-8")
        made.replace(self.report)


def main(arguments: list[str]) -> int:
    """Run the command line under the recorder."""
    from nodeagent.cli.main import main as run_command_line  # noqa: PLC0415  after the handlers are watched

    recorder = Recorder(Path(arguments[0]))
    for name in CALLS:
        setattr(PluginServer, name, recorder.watch(name, getattr(PluginServer, name)))
    threading.setprofile(recorder.follow)
    sys.setprofile(recorder.follow)
    sys.argv[1:] = arguments[1:]
    return run_command_line()


def measure_crossings(wanted: frozenset[str]) -> dict[str, list[str]]:
    """The files by call, once each of the calls that are wanted was seen.

    Raises:
        TimeoutError: The simulation did not make them.
    """
    with tempfile.TemporaryDirectory(prefix="na-") as name:
        directory = Path(name)
        report, configuration = directory / "report.json", directory / "config.yaml"
        configuration.write_text(CONFIGURATION, encoding="utf-8")
        command = [sys.executable, "-m", "tests.architecture.house.crossings", str(report), "simulate"]
        options = ["--config", str(configuration), "--pods", "14", "--profile", "dgx-h100"]
        agent = subprocess.Popen([*command, *options], env=command_environment(directory), stdout=subprocess.DEVNULL)
        try:
            return _wait_report(report, wanted, agent)
        finally:
            agent.send_signal(signal.SIGTERM)
            try:
                agent.wait(PATIENCE_SECONDS)
            finally:
                agent.kill()
                agent.wait()


def _wait_report(report: Path, wanted: frozenset[str], agent: subprocess.Popen[bytes]) -> dict[str, list[str]]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen: dict[str, list[str]] = {}
    while time.monotonic() < deadline and agent.poll() is None:
        if report.exists():
            seen = json.loads(report.read_text(encoding="utf-8"))
            if wanted <= seen.keys():
                return seen
        time.sleep(0.1)
    raise TimeoutError(f"the simulation made the calls {sorted(seen)}, and not {sorted(wanted - seen.keys())}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
