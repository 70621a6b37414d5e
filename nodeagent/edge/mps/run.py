"""Runs one short program with a deadline, whatever it does with its output.

A program that leaves a daemon behind may leave it the output too, so that a pipe would not end with the program and
would kill the daemon with the agent: both sides are files in memory, and the end is that of the process itself.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import anyio

from nodeagent.edge.host.processes.program_end import kill_program, memory_file, wait_process

_OUTPUT_LIMIT: Final = 64 * 1024
_GONE_SECONDS: Final = 0.5


class Ran(NamedTuple):
    """How it ended."""

    status: int | None
    """`None` where it did not end in time and was killed."""
    output: str

    @property
    def said(self) -> str:
        """Its output in one line, for people."""
        return " ".join(self.output.split())[:300] or "it said nothing"


async def run(argv: Sequence[str], environment: Mapping[str, str], text: str, timeout_seconds: float) -> Ran:
    """Run it with this text as its input and nothing but this environment.

    Raises:
        OSError: it cannot be started.
    """
    with memory_file("mps") as source, memory_file("mps") as sink:
        os.write(source, text.encode())
        os.lseek(source, 0, os.SEEK_SET)
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - vfork and exec take a millisecond; the program is the driver's
            argv, env=dict(environment), stdin=source, stdout=sink, stderr=sink, start_new_session=True
        )
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + timeout_seconds
            try:
                await wait_process(process.pid)
            finally:
                status = process.poll()
                if status is None:
                    await kill_program(process, _GONE_SECONDS)
        return Ran(status, os.pread(sink, _OUTPUT_LIMIT, 0).decode("utf-8", "replace"))
