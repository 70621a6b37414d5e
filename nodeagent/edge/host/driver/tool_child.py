"""The driver's own program, `nvidia-smi`, and commands of the settings: each in a process that may be abandoned.

Owns the command lines and their deadlines. Refuses to raise for what happens to a command: a command that hangs, dies
or cannot be started is an answer without an exit code. A process that survives SIGKILL is left behind.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from nodeagent.core.children.ask_once import ask_once
from nodeagent.core.errors import CoreError
from nodeagent.model.ids import PciAddress
from nodeagent.model.repairs import ToolAnswer

_MODULE: Final = "nodeagent.edge.host.driver.tool_run"
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
        return await run_tool([*self._tool, "-i", address, "-pm", str(int(is_on))], SETTING_SECONDS)

    async def set_power_limit(self, address: PciAddress, milliwatts: int) -> ToolAnswer:
        """Set the power limit of a GPU."""
        return await run_tool([*self._tool, "-i", address, "-pl", f"{milliwatts / 1000:g}"], SETTING_SECONDS)


async def run_tool(argv: Sequence[str], timeout_seconds: float) -> ToolAnswer:
    """Run a command to its end, or abandon it at its deadline."""
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
