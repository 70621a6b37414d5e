"""`python -m tests.integration.reaper COMMAND…`: runs a command, and leaves nothing of it, whatever ends it.

What make starts is only a front. It has a reaper start the command: a process in a session of its own to which every
orphan below it falls (a child subreaper), so that all that the command ever started is found below it, containers
included. The front and the reaper share a pipe. When it closes, because the front was asked to end, or was killed, or
whoever started it was, the reaper interrupts the command, waits for it to clean up, kills what is left, and removes the
cluster. If the reaper itself is killed, the kernel interrupts the command.
"""

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.integration.cluster.control import remove_cluster
from tests.integration.cluster.errors import ClusterBusy, LeftBehind
from tests.integration.cluster.layout import LANES_BESIDE, Layout
from tests.integration.cluster.leftovers import name_of
from tests.integration.cluster.lock import hold
from tests.integration.cluster.processes import PROC, ProcessId, read_stat
from tests.integration.cluster.versions import MATRIX

PATIENCE_SECONDS: Final = 90.0
"""What the command has to clean up in, once it is interrupted: removing a cluster takes up to three times ten."""
KILL_SECONDS: Final = 30.0
LIFELINE: Final = "--lifeline"
KEPT: Final = "--reuse-cluster"
"""With this word among the command's, what it started is to stay."""
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_NEVER_KILLED_FOR_MEMORY: Final = "-1000"
_PARENT_STAT: Final = 1  # the place of the parent's number among the fields of `split_stat`
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> int:
    """Be the front, or the reaper that the front has started."""
    if arguments[:1] == [LIFELINE]:
        return Reaper(int(arguments[1]), arguments[2:]).run()
    return run_front(arguments)


def run_front(command: Sequence[str]) -> int:
    """Start the reaper and wait for it; the pipe between the two closes when this process is asked to end, or ends."""
    theirs, ours = os.pipe()
    parent = os.getppid()
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)

    def let_go(*_: object) -> None:
        nonlocal ours
        if ours >= 0:
            os.close(ours)
            ours = -1

    for number in ENDING:
        signal.signal(number, let_go)
    if os.getppid() != parent:
        let_go()  # it ended before this process could ask to hear of it
    words = (sys.executable, "-m", "tests.integration.reaper", LIFELINE, str(theirs), *command)
    reaper = subprocess.Popen(words, pass_fds=(theirs,), start_new_session=True)
    os.close(theirs)
    return _status(reaper.wait())


class Reaper:
    """Runs the command, and reaps all that falls to it."""

    def __init__(self, lifeline: int, command: Sequence[str]) -> None:
        self._lifeline, self._command = lifeline, command
        self._woken, self._waker = os.pipe()
        self._child = 0
        self._status: int | None = None
        self._is_asked = False

    def run(self) -> int:
        """The status of the command; 1 where it passed and something could not be removed."""
        os.set_inheritable(self._lifeline, False)
        os.set_blocking(self._waker, False)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGCHLD):
            signal.signal(number, self._note)
        self._start()
        self._wait()
        status = 128 + signal.SIGKILL if self._status is None else _status(os.waitstatus_to_exitcode(self._status))
        if KEPT in self._command:
            return status
        ended = end_descendants()
        problem = remove_traces() if ended or self._is_asked or status > 128 else ""
        if ended and not self._is_asked:
            _say(f"ended what the run had left: {', '.join(ended)}")
        if problem:
            _say(problem)
        return status or int(bool(problem))

    def _note(self, number: int, _frame: object) -> None:
        self._is_asked |= number != signal.SIGCHLD

    def _start(self) -> None:
        """The command as a child: interrupted when this process is killed, and killed for memory as before."""
        before = _spare(_NEVER_KILLED_FOR_MEMORY)
        self._child = os.fork()
        if self._child == 0:
            try:
                _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGINT)
                _spare(before)
                for number in ENDING:
                    signal.signal(number, signal.SIG_DFL)
                os.execvp(self._command[0], list(self._command))
            finally:
                os._exit(127)

    def _wait(self) -> None:
        """Return when the command has ended, or has had the time to."""
        limit: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._lifeline, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while self._status is None and (limit is None or time.monotonic() < limit):
                ready = {key.fd for key, _ in selector.select(limit and limit - time.monotonic())}
                if self._woken in ready:
                    os.read(self._woken, 1024)
                if self._lifeline in ready:
                    self._is_asked = True
                    selector.unregister(self._lifeline)
                for pid, status in reap():
                    if pid == self._child:
                        self._status = status
                if self._is_asked and limit is None:
                    limit = time.monotonic() + PATIENCE_SECONDS
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._child, signal.SIGINT)


def reap() -> list[tuple[int, int]]:
    """The number and the status of every child that has ended."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            found.append(ended)
    return found


def end_descendants() -> list[str]:
    """Kill everything below this process, until nothing comes any more; return who that was, or could not be ended."""
    ended: dict[ProcessId, str] = {}
    limit = time.monotonic() + KILL_SECONDS
    while left := find_descendants(os.getpid()):
        for each in left:
            ended.setdefault(each, f"{name_of(each.pid)} ({each.pid})")
            each.send(signal.SIGKILL)
        if time.monotonic() > limit:
            return [f"{name} cannot be killed" for process, name in ended.items() if process in left]
        signal.sigtimedwait([signal.SIGCHLD], 0.05)
        reap()
    reap()
    return list(ended.values())


def find_descendants(pid: int) -> list[ProcessId]:
    """Every living process below one, at this moment."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := read_stat(int(entry.name))) is not None:
            children.setdefault(int(fields[_PARENT_STAT]), []).append(int(entry.name))
    found, below = [], [pid]
    while below:
        below = [child for each in below for child in children.get(each, ())]
        found += below
    return [process for each in found if (process := ProcessId.of(each)) is not None]


def remove_traces() -> str:
    """Remove the clusters' files, cgroups and kernel settings; what is wrong, empty where nothing is."""
    try:
        whole = Layout.of_checkout()
        for layout in {
            whole,
            *map(whole.beside, LANES_BESIDE),
            *(Layout.of_checkout(versions=each) for each in MATRIX),
        }:
            with hold(layout):
                remove_cluster(layout)
    except (ClusterBusy, LeftBehind) as error:
        return str(error)
    return ""


def _status(code: int) -> int:
    return 128 - code if code < 0 else code


def _spare(score: str) -> str:
    """Set how likely this process is to be killed when memory runs out, where it may; return what it was."""
    place = PROC / "self/oom_score_adj"
    before = place.read_text().strip()
    with contextlib.suppress(PermissionError):  # less likely than before is for root alone
        place.write_text(score)
    return before


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _say(text: str) -> None:
    sys.stderr.write(f"reaper: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
