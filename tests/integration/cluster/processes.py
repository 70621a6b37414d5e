"""Long-running processes of the cluster: start them in their own session, recognise them again, end exactly them.

A process is known by its id and its start time together, so that a recycled id is never taken for ours.
Refuses to signal anything it cannot recognise.
"""

import dataclasses
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
START_TICKS = 19  # its place among the fields of `split_stat`


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, never another one with the same number."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this number now; None when there is none or it is only waiting to be reaped."""
        fields = read_stat(pid)
        return None if fields is None or fields[0] in "ZX" else cls(pid, int(fields[START_TICKS]))

    def is_alive(self) -> bool:
        return type(self).of(self.pid) == self

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


def spawn(command: Sequence[str], log: Path, record: Path, environment: Mapping[str, str]) -> ProcessId:
    """Start a process that outlives us and is not our child, its output appended to `log`.

    It writes its own record before it becomes `command`: there is no moment at which it runs and nobody knows it.
    """
    record.unlink(missing_ok=True)
    detached = ("sh", "-c", _DETACH, "sh", str(log), "sh", "-c", _RECORD, "sh", str(record), *command)
    subprocess.run(detached, stdin=subprocess.DEVNULL, env=environment, start_new_session=True, check=True)
    wait_until(f"{record.name} to start", lambda: None if record.exists() else "no record", timeout_seconds=10)
    identity = read_record(record)
    assert identity is not None, "a record is renamed into place whole"
    return identity


_DETACH = 'log=$1; shift; "$@" >>"$log" 2>&1 &'
_RECORD = 'cat /proc/$$/stat >"$1.new" && mv "$1.new" "$1" && shift && exec "$@"'


def write_record(pid: int, record: Path) -> None:
    """Remember a process that was started in another way."""
    record.write_text((PROC / str(pid) / "stat").read_text())


def read_record(record: Path) -> ProcessId | None:
    """The process remembered in `record`; None where there is none, or the record was cut off."""
    try:
        text = record.read_text()
    except FileNotFoundError:
        return None
    fields = split_stat(text)
    return ProcessId(int(text.split()[0]), int(fields[START_TICKS])) if len(fields) > START_TICKS else None


def read_stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the command name; None when there is no such process."""
    try:
        return split_stat((PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def split_stat(text: str) -> list[str]:
    """The fields after the command name, which may itself contain spaces and brackets."""
    return text.rpartition(")")[2].split()


def end(processes: Iterable[ProcessId], number: signal.Signals, timeout_seconds: float) -> tuple[ProcessId, ...]:
    """Signal all, wait for all, and return those that are still there at the deadline."""
    remaining = tuple(processes)
    for each in remaining:
        each.send(number)
    deadline = time.monotonic() + timeout_seconds
    while remaining and time.monotonic() < deadline:
        remaining = tuple(each for each in remaining if each.is_alive())
        if remaining:
            time.sleep(POLL_SECONDS)
    return remaining


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
