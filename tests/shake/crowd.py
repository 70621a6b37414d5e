"""Processes beside a run of the tests, none of which outlives it, however it ends."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

BUSY: Final = 4
LIMIT_SECONDS: Final = 3 * 3600.0
"""Longer than any run; what is busy ends by itself then."""
ENDING_SECONDS: Final = 30.0
_SET_PARENT_DEATH_SIGNAL: Final = 1
SPIN: Final = """
import os, sys, time
parent, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while os.getppid() == parent and time.monotonic() < end:
    sum(range(20_000))
"""
_LIBC: Final = ctypes.CDLL(None)


@contextlib.contextmanager
def running(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    output: IO[bytes] | int,
    *,
    patience_seconds: float = ENDING_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """A command and all that it starts, ended with the block, or with this process."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - nothing here has threads
    )
    try:
        yield process
    finally:
        end(process, patience_seconds)


def _end_with_parent() -> None:
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def end(process: subprocess.Popen[bytes], patience_seconds: float) -> None:
    """Ask the whole group to end, and see to it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        limit = time.monotonic() + patience_seconds
        is_there = _signal_group(process, number)
        while is_there and time.monotonic() < limit:
            time.sleep(0.02)
            is_there = _signal_group(process, 0)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether there was anybody to signal; its leader is no longer there once it has been waited for."""
    process.poll()
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def make_busy(program: str, *words: str) -> list[str]:
    """The command of a program that ends with this process, and by itself when its time is over."""
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid()), str(LIMIT_SECONDS), *words]


@contextlib.contextmanager
def crowd(clone: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A simulation, as the README says to start one, and processes that want all the time there is."""
    spin = make_busy(SPIN)
    with contextlib.ExitStack() as stack:
        for command in (["make", "run"], *[spin] * BUSY):
            stack.enter_context(running(command, clone, environment, subprocess.DEVNULL))
        yield
