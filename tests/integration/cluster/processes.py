"""Long-running processes of the cluster: start them in their own session, recognise them again, end exactly them.

A process is known by its id and its start time together, so that a recycled id is never taken for ours.
Refuses to signal anything it cannot recognise.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.integration.cluster.errors import CommandFailed, WaitTimedOut

POLL_SECONDS = 0.05
PROC = Path("/proc")


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, never another one with the same number."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this number now; None when there is none or it is only waiting to be reaped."""
        fields = read_stat(pid)
        return None if fields is None or fields[0] in "ZX" else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        return type(self).of(self.pid) == self

    def write(self, record: Path) -> None:
        """Remember it in a file, for `read_record`."""
        record.write_text(json.dumps(dataclasses.asdict(self)))

    def send(self, number: signal.Signals) -> None:
        """Signal it if it is still the one we mean."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass  # it ended between the look and the signal: what we wanted
        finally:
            os.close(handle)


def read_stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the command name (which may itself contain spaces and brackets)."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def spawn(command: Sequence[str], log: Path, record: Path, environment: Mapping[str, str]) -> ProcessId:
    """Start a process that outlives us, its output appended to `log`, and remember it in `record`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    child.returncode = 0  # Popen shall not complain that nobody waits: `down` may run in another process
    started = ProcessId.of(child.pid)
    identity = started or ProcessId(child.pid, 0)  # 0 when it ended at once; the caller's own check tells that story
    identity.write(record)
    return identity


def read_record(record: Path) -> ProcessId | None:
    """The process remembered in `record`; None where none was started, or the record was cut off."""
    try:
        return ProcessId(**json.loads(record.read_text()))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def end(processes: Iterable[ProcessId], number: signal.Signals, timeout_seconds: float) -> tuple[ProcessId, ...]:
    """Signal all, wait for all, and return those that are still there at the deadline."""
    remaining = tuple(processes)
    for each in remaining:
        each.send(number)
    deadline = time.monotonic() + timeout_seconds
    while remaining and time.monotonic() < deadline:
        for each in remaining:
            reap(each)
        remaining = tuple(each for each in remaining if each.is_alive())
        if remaining:
            time.sleep(POLL_SECONDS)
    return remaining


def reap(process: ProcessId) -> None:
    """Collect a finished child of this very process; others have their own parent for that."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def run(command: Sequence[str], environment: Mapping[str, str], *, timeout_seconds: float = 60, stdin: str = "") -> str:
    """Run a helper program to its end and return what it printed.

    Raises:
        CommandFailed: it exited with an error, or not at all.
    """
    try:
        done = subprocess.run(
            command, env=environment, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(command, -1, f"no end after {timeout_seconds:g} s") from error
    if done.returncode != 0:
        raise CommandFailed(command, done.returncode, done.stderr or done.stdout)
    return done.stdout


def wait_until(
    what: str, probe: Callable[[], str | None], *, timeout_seconds: float, poll_seconds: float = POLL_SECONDS
) -> None:
    """Return as soon as `probe` answers None; its other answers say what is still in the way.

    Raises:
        WaitTimedOut: with the last answer.
    """
    deadline = time.monotonic() + timeout_seconds
    while (obstacle := probe()) is not None:
        if time.monotonic() >= deadline:
            raise WaitTimedOut(what, timeout_seconds, obstacle)
        time.sleep(poll_seconds)
