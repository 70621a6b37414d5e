"""The driver's own program, `nvidia-smi`, and commands of the settings: each in a process that may be abandoned.

Owns the command lines and their deadlines. Refuses to raise for what happens to a command: a command that hangs, dies
or cannot be started is an answer too. A process that survives SIGKILL is left behind. The process does not end with the
agent: a reset that is cut short leaves the GPU worse than before.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from nodeagent.core.children.ask_once import ask_once
from nodeagent.core.children.child_setup import claim_answers
from nodeagent.core.children.frames import read_frames, write_frame
from nodeagent.core.errors import CoreError
from nodeagent.model.gpu import ComputeMode
from nodeagent.model.ids import PciAddress
from nodeagent.model.repairs import ToolAnswer

_MODULE: Final = "nodeagent.edge.host.driver.tool_child"
SAID_MOST: Final = 4096
"""Characters of what a command wrote that are passed on, the last ones."""
NOT_STARTED: Final = 127
"""The code that shells use."""
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_LIMIT_BYTES: Final = 64 * 1024
SETTING_SECONDS: Final = 30.0
"""How long the change of one setting may take."""


class DriverToolChild:
    """The port `DriverTool`."""

    def __init__(self, driver_root: str = "", tool: Sequence[str] = ()) -> None:
        """`tool` is the program, by default `nvidia-smi` of the driver root."""
        root = driver_root.rstrip("/")
        self._tool = list(tool) or [*(("chroot", root) if root else ()), "nvidia-smi"]

    async def reset(self, addresses: Sequence[PciAddress], *, is_bus: bool, timeout_seconds: float) -> ToolAnswer:
        """Reset GPUs together, their functions or their bus."""
        words = ("--gpu-reset", *(("bus",) if is_bus else ()), "-i", ",".join(addresses))
        return await run_tool([*self._tool, *words], timeout_seconds)

    async def set_persistence(self, address: PciAddress, *, is_on: bool) -> ToolAnswer:
        """Set the persistence mode of a GPU."""
        return await self._set(address, "-pm", str(int(is_on)))

    async def set_power_limit(self, address: PciAddress, milliwatts: int) -> ToolAnswer:
        """Set the power limit of a GPU."""
        return await self._set(address, "-pl", f"{milliwatts / 1000:g}")

    async def set_compute_mode(self, address: PciAddress, mode: ComputeMode) -> ToolAnswer:
        """Set the compute mode of a GPU."""
        return await self._set(address, "-c", mode.name)

    async def set_application_clocks(self, address: PciAddress, memory_mhz: int, graphics_mhz: int) -> ToolAnswer:
        """Set the clocks that applications on a GPU get."""
        return await self._set(address, "-ac", f"{memory_mhz},{graphics_mhz}")

    async def _set(self, address: PciAddress, option: str, value: str) -> ToolAnswer:
        return await run_tool([*self._tool, "-i", address, option, value], SETTING_SECONDS)


async def run_tool(argv: Sequence[str], timeout_seconds: float) -> ToolAnswer:
    """Run a command to the end, or abandon the command at the deadline."""
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        answer = await ask_once(
            [sys.executable, "-m", _MODULE],
            msgspec.json.encode(list(argv)),
            env=environment,
            name="driver-tool",
            timeout_seconds=timeout_seconds,
            limit_bytes=_LIMIT_BYTES,
        )
        return msgspec.json.decode(answer, type=ToolAnswer)
    except (CoreError, msgspec.DecodeError) as error:
        return ToolAnswer(code=None, said=f"{argv[0]}: {error}")


def run_command(argv: list[str]) -> dict[str, object]:
    """The exit code and what the command wrote; for a command that could not be started the code that shells use."""
    try:
        done = subprocess.run(  # noqa: S603  # the command is the agent's, or the settings'
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError as error:
        return {"code": NOT_STARTED, "said": f"{argv[0]} cannot be started: {os.strerror(error.errno or 0)}"}
    return {"code": done.returncode, "said": done.stdout.decode("utf-8", "replace")[-SAID_MOST:]}


def main() -> None:
    """The child: run each command asked for, until the agent closes the pipe."""
    answers = claim_answers()
    for request, payload in read_frames(0):
        write_frame(answers, request, json.dumps(run_command(json.loads(payload))).encode())
    os.close(answers)


if __name__ == "__main__":
    main()
