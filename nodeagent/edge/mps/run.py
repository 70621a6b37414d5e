"""Runs a short program with a deadline, whatever the program does with the output.

A program that leaves a daemon behind may leave the output to the daemon, so that a pipe would not end with the program
and would kill the daemon with the agent: input and output are files in memory, and the end is the process's own end.
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
    """The result of a program run."""

    status: int | None
    """`None` for a program killed at the deadline."""
    output: str

    @property
    def said(self) -> str:
        """The output in one line, for people."""
        return " ".join(self.output.split())[:300] or "it said nothing"


async def run(argv: Sequence[str], environment: Mapping[str, str], text: str, timeout_seconds: float) -> Ran:
    """Run a program with the text as input and only the given environment.

    Raises:
        OSError: the program cannot be started.
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
