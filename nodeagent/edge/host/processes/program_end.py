"""The end of a program that the agent started: awaited without a thread, and forced on all children of the program.

The output is a file in memory: a daemon left behind by the program may keep a pipe open, and would die with the agent.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio


async def wait_process(pid: int) -> None:
    """Return when the process has ended, at once for a missing process."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def kill_program(process: subprocess.Popen[bytes], gone_seconds: float) -> None:
    """Kill a session's leader and all its children; after `gone_seconds`, a process stuck in the kernel is left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with anyio.CancelScope(shield=True), anyio.move_on_after(gone_seconds):
        await wait_process(process.pid)
    process.poll()


@contextmanager
def memory_file(name: str) -> Iterator[int]:
    """A file without a place on a disk; people see the name in /proc."""
    descriptor = os.memfd_create(name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
