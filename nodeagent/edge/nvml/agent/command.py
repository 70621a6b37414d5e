"""The worker's command line and environment, and the start of the first worker before the agent has a loop.

The agent's own imports take longer than the worker's whole start, so the first worker is started before the imports and
opens the library on another processor. Owns the process until the connection takes over. Refuses heavy imports.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import nodeagent
from nodeagent.core.children.frames import encode_frame
from nodeagent.core.children.spawn import discard, spawn

_LAUNCH = (
    "import sys; sys.path.extend(sys.argv[1:3]); from nodeagent.edge.nvml.worker.launch import {}; {}(sys.argv[3:])"
)
_READS, _CUTS = "main", "main_partition"
_NOBODY = 0xFFFF_FFFF
"""The request number of a question whose answer nobody waits for."""

SMALL_ENVIRONMENT = {
    # One arena of the allocator is enough for two threads that rarely allocate: half a megabyte saved.
    "MALLOC_ARENA_MAX": "1",
    # Python itself uses UTF-8 then; the tables of a locale that nobody asks would be 0.2 MB.
    "LC_ALL": "C",
}
"""What keeps the worker's memory small; settings may say otherwise."""


def render_command(root: str, library: str, *, cuts: bool = False) -> list[str]:
    """The worker's command line: an isolated interpreter with two more places for modules.

    `cuts` asks for the worker that changes partitions, in place of the worker that reads.
    """
    entry = _CUTS if cuts else _READS
    binding = importlib.util.find_spec("pynvml")
    assert binding is not None
    assert binding.origin is not None
    places = [str(Path(nodeagent.__file__).parents[1]), str(Path(binding.origin).parent)]
    return [sys.executable, "-I", "-S", "-E", "-c", _LAUNCH.format(entry, entry), *places, root, library]


def render_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The worker's whole environment, the death signal's variable aside."""
    return {**SMALL_ENVIRONMENT, **extra}


class EarlyWorker:
    """A worker that starts before the agent can ask."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the worker.

        Raises:
            OSError: The worker cannot be started.
        """
        self._wanted = (list(argv), dict(environment))
        self._process: subprocess.Popen[bytes] | None = spawn(argv, environment)

    def open_library(self) -> None:
        """Have the worker load and initialise the library at once, ahead of the first question.

        Raises:
            OSError: The worker has ended already.
        """
        if self._process is not None and self._process.stdin is not None:
            # A new pipe takes more than this without waiting.
            os.write(self._process.stdin.fileno(), encode_frame(_NOBODY, b'{"do":"open"}'))

    def take(self, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """The process, for the new owner; `None` after the first call, or for another command."""
        if self._wanted != (list(argv), dict(environment)):
            self.close()
        process, self._process = self._process, None
        return process

    def close(self) -> None:
        """End the worker, unless taken."""
        process, self._process = self._process, None
        if process is not None:
            discard(process)
