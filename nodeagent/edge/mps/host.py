"""The port `MpsHost` on a real host: starts daemons that outlive the agent, finds running daemons, and talks to them.

Owns the daemons' directories, command line and environment, and the assignment of processes to daemons.
Refuses to be a daemon's parent: an agent that is killed or replaced must not take the work of pods along.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
from msgspec import Struct

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import CoreError
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.driver.library_search import resolve
from nodeagent.edge.host.errors import HostError, describe_os_error
from nodeagent.edge.host.files.container_label import label_for_containers
from nodeagent.edge.host.processes.program_end import wait_process
from nodeagent.edge.mps import launch, memory
from nodeagent.edge.mps.processes import find_daemon, list_family, list_processes
from nodeagent.edge.mps.run import Ran, run
from nodeagent.model.errors import MpsRefused, MpsSilent
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MARKER, MpsPlace

T = TypeVar("T")

PROGRAM: Final = "nvidia-cuda-mps-control"
_PLACES: Final = ("usr/bin", "usr/local/bin", "bin", "usr/sbin", "usr/local/sbin", "sbin", "usr/lib/nvidia/current")
_LAUNCH: Final = (sys.executable, "-I", "-S", "-E", launch.__file__)
_MEMORY: Final = (sys.executable, "-I", "-S", "-E", memory.__file__)
_FILES_SECONDS: Final = 5.0
_LOG_LIMIT: Final = 16 * 1024
FLOOD_LIMIT: Final = 64 * _LOG_LIMIT
"""A longer log is cut even at the loss of new lines: clients of a daemon's pipe could fill the disk."""
_LOGS: Final = ("control.log", "server.log")
_QUIT: Final = "quit"
_RECEIPT: Final = "get_default_active_thread_percentage"
"""Always answered: without the answer the daemon has read nothing, though the front end may end well."""
_TURN_SECONDS: Final = 0.05
_MULTI_USER: Final = "-M"
_NO_DAEMON: Final = "Cannot find MPS control daemon"
"""The answer to arguments that the program does not know: the program then takes itself for a front end."""
_OLD: Final = (
    "the driver's program knows no multi-user mode, as those of drivers 535 and 550: leave `multiUser` out of the"
    " claim, or install a newer driver (that of CUDA 13.3 has the mode)"
)
_NOT_SENT: Final = "Cannot send command"


class MpsHostSettings(Struct, frozen=True):
    """Where the driver is, and how long the agent waits for MPS daemons."""

    find_root: Callable[[], Path]
    """The driver's root as the agent's process sees the path; a root may appear later than the agent."""
    program: Path | None = None
    memory_bytes: int | None = None
    """The size of /dev/shm, for daemons and clients with a /dev/shm of their own; `None` for an unbounded one."""
    start_timeout_seconds: float = 10.0
    answer_timeout_seconds: float = 5.0


class HostMps:
    """Starts and asks MPS daemons; belongs to the event loop's thread, with a worker thread for files and /proc."""

    def __init__(self, settings: MpsHostSettings, worker: WorkerThread) -> None:
        self._settings, self._worker = settings, worker
        self._read: dict[Path, int] = {}
        self._turn = anyio.Lock()
        self._log = get_logger(component="mps")

    async def find(self, place: MpsPlace) -> int | None:
        """The daemon of this pipe directory."""
        return await self._look(lambda: find_daemon(place.pipes), "look for a daemon", None)

    async def start(self, place: MpsPlace, gpus: Sequence[GpuUuid], *, multi_user: bool = False) -> int:
        """Start a daemon, with nothing of the agent's environment."""
        await self._prepare(place)
        for name in _LOGS:
            # Only lines written from now on are read, none of a former daemon.
            self._read[place.logs / name] = _measure(place.logs / name)
        environment = {
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            "CUDA_MPS_PIPE_DIRECTORY": str(place.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(place.logs),
        }
        argv = self._command(place, "-d", *((_MULTI_USER,) if multi_user else ()))
        try:
            ran = await run(argv, environment, "", self._settings.start_timeout_seconds)
        except OSError as error:
            raise MpsRefused(f"cannot start {argv[0]}: {describe_os_error(error)}") from error
        if ran.status is None:
            await self._clear_up(place)
            raise MpsRefused(f"{PROGRAM} did not come up within {self._settings.start_timeout_seconds:g} s")
        if ran.status != 0:
            old = f"; {_OLD}" if multi_user and _NO_DAEMON in ran.output else ""
            raise MpsRefused(f"{PROGRAM} ended with {ran.status}: {ran.said}{old}")
        pid = await self.find(place)
        if pid is None:
            raise MpsRefused(f"{PROGRAM} was started and is gone: {ran.said}")
        return pid

    async def ask(self, place: MpsPlace, commands: Sequence[str], timeout_seconds: float = 0.0) -> tuple[str, ...]:
        """Ask through the front end, killed at the deadline, and retried while the daemon serves another front end."""
        patience = timeout_seconds or self._settings.answer_timeout_seconds
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(place.pipes), "CUDA_MPS_LOG_DIRECTORY": str(place.logs)}
        is_last = any(command.startswith(_QUIT) for command in commands)
        receipt = () if is_last or tuple(commands[-1:]) == (_RECEIPT,) else (_RECEIPT,)
        text = "".join(f"{one}\n" for one in (*commands, *receipt))
        deadline, is_busy = anyio.current_time() + patience, False
        while True:
            try:
                argv = self._command(place, talks=True)
                ran = await run(argv, environment, text, max(0.0, deadline - anyio.current_time()))
            except (OSError, MpsRefused) as error:
                raise MpsSilent(f"cannot ask the daemon: {error}") from error
            # A run cut off by the deadline after refused runs counts as refused too.
            is_busy = _was_turned_away(ran, has_receipt=not is_last) or (is_busy and ran.status is None)
            if not is_busy:
                answer = _read_answer(ran, patience)
                return answer[: len(answer) - len(receipt)]
            if anyio.current_time() + _TURN_SECONDS >= deadline:
                raise MpsSilent("it serves one front end at a time, and another one does not end")
            await anyio.sleep(_TURN_SECONDS)

    async def wait_end(self, pid: int) -> None:
        """Return as soon as the process has ended."""
        await wait_process(pid)

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:
        """The daemon's servers and the living clients, by the kernel's word."""
        nobody: frozenset[int] = frozenset()
        return await self._look(lambda: list_processes(pid, clients), "look for servers and clients", nobody)

    async def kill(self, pid: int) -> None:
        """Kill the daemon's servers, which hold the GPU, then the daemon."""
        nobody: tuple[int, ...] = ()
        for process in await self._look(lambda: list_family(pid), "list the servers of a daemon", nobody):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:
        """The new lines of the daemon's logs; long logs are cut."""
        lines: list[str] = []
        for name in _LOGS:
            path = place.logs / name
            known = self._read.get(path)
            reading = partial(_read_from, path, known)
            text, self._read[path] = await self._look(reading, "read the log of a daemon", ("", known or 0))
            lines += text.splitlines()
        return tuple(lines)

    async def remove(self, place: MpsPlace) -> None:
        """Remove the daemon's directory, and with the last daemon the shared directory."""
        for name in _LOGS:
            self._read.pop(place.logs / name, None)
        async with self._turn:
            await self._do(lambda: _remove(place), "take away the directory of a daemon")
            await self._remove_shared(place.root)

    async def remove_shared(self, root: Path) -> None:
        """Remove the directory and marker of all daemons, when no daemon is left."""
        async with self._turn:
            await self._remove_shared(root)

    async def _remove_shared(self, root: Path) -> None:
        if not await self._look(lambda: _is_last(root), "look for daemons", False):  # noqa: FBT003
            return
        own = root / "shm"
        if await self._look(own.is_mount, "look for a mount", False):  # noqa: FBT003 - what is seen
            await self._run_memory("unmount", str(own))
        await self._do(lambda: _remove_root(root), "take away the directory of daemons")

    async def _prepare(self, place: MpsPlace) -> None:
        """Make directories, and mount a bounded /dev/shm where permitted; else a plain directory serves as /dev/shm."""
        async with self._turn:
            # Nothing is mounted over a running daemon's memory.
            has_memory = await self._look(place.shared_memory.exists, "look for shared memory", True)  # noqa: FBT003
            await self._do(lambda: _make_directories(place), "make the directories of a daemon")
            size = self._settings.memory_bytes
            if size is not None and place.has_own_memory and not has_memory:
                try:
                    await self._run_memory("mount", str(place.shared_memory), str(size))
                except MpsRefused as error:
                    self._log.warning("mps_memory_not_bounded", reason=str(error))

    async def _run_memory(self, *arguments: str) -> None:
        try:
            ran = await run((*_MEMORY, *arguments), {}, "", _FILES_SECONDS)
        except OSError as error:
            raise MpsRefused(f"cannot start {_MEMORY[0]}: {describe_os_error(error)}") from error
        if ran.status != 0:
            raise MpsRefused(ran.said)

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    async def _clear_up(self, place: MpsPlace) -> None:
        """Kill a daemon that came up after the deadline."""
        pid = await self.find(place)
        if pid is not None:
            await self.kill(pid)

    def _command(self, place: MpsPlace, *arguments: str, talks: bool = False) -> tuple[str, ...]:
        root = str(self._settings.find_root()).rstrip("/")
        program = str(self._settings.program or find_program(root))
        memory = str(place.shared_memory) if place.has_own_memory and not talks else ""
        if not root and not memory:
            return (program, *arguments)
        return (*_LAUNCH, root, memory, str(place.root), program, *arguments)

    async def _look(self, call: Callable[[], T], what: str, otherwise: T) -> T:
        """The result of the call in the worker thread; `otherwise` after a failure."""
        try:
            return await self._worker.run(call, timeout_seconds=_FILES_SECONDS, what=what)
        except (OSError, CoreError):
            return otherwise

    async def _do(self, call: Callable[[], None], what: str) -> None:
        try:
            await self._worker.run(call, timeout_seconds=_FILES_SECONDS, what=what)
        except (OSError, CoreError, HostError) as error:
            raise MpsRefused(f"cannot {what}: {error}") from error


def find_program(root: str) -> str:
    """The program's path as seen by a process in the driver's root."""
    for place in _PLACES:
        if resolve(root or "/", f"{place}/{PROGRAM}") is not None:
            return f"/{place}/{PROGRAM}"
    raise MpsRefused(
        f"there is no {PROGRAM} below {root or '/'}: install it with the driver, or name it in `mps.program`"
    )


def _make_directories(place: MpsPlace) -> None:
    # First of all: the marker shows a later agent with other settings, and an uninstall, that there is work to undo.
    place.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    (place.root / MARKER).touch()
    for directory in (place.pipes, place.logs):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    if place.has_own_memory:
        place.shared_memory.mkdir(mode=0o1777, parents=True, exist_ok=True)
        # Whatever the umask of the process is.
        place.shared_memory.chmod(0o1777)
    label_for_containers(place.pipes)


def _remove(place: MpsPlace) -> None:
    if place.directory.is_dir():
        shutil.rmtree(place.directory)
    # The domain of a resource's name has a directory of its own.
    domain = place.directory.parent
    if domain != place.root and domain.is_dir() and not any(domain.iterdir()):
        domain.rmdir()


def _remove_root(root: Path) -> None:
    shutil.rmtree(root / "shm", ignore_errors=not (root / "shm").exists())
    (root / MARKER).unlink(missing_ok=True)
    # In a pod the root is a mount of the host's directory, which goes with the pod.
    if not root.is_mount():
        root.rmdir()


def _is_last(root: Path) -> bool:
    """Whether only the files common to all daemons are left."""
    return root.is_dir() and {one.name for one in root.iterdir()} <= {"shm", MARKER}


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_from(path: Path, start: int | None) -> tuple[str, int]:
    """The text added since `start`; empty for a log never read before. A long log is truncated."""
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = size if start is None else start if start <= size else 0
            file.seek(max(start, size - _LOG_LIMIT))
            text = file.read(_LOG_LIMIT).decode("utf-8", "replace")
            # The daemon appends at the end. Lines added just now are read next time, before the log is cut; but a
            # daemon that never stops adding cannot keep the log from being cut.
            end = file.seek(0, os.SEEK_END)
            if size > _LOG_LIMIT and (end == size or end > FLOOD_LIMIT):
                file.truncate(0)
                size = 0
    except FileNotFoundError:
        return "", 0
    return text, size


def _was_turned_away(ran: Ran, *, has_receipt: bool) -> bool:
    """Whether the daemon was serving another front end: no output, or a failure to send."""
    if ran.status is None:
        return False
    return _NOT_SENT in ran.output or (has_receipt and not ran.output)


def _read_answer(ran: Ran, patience: float) -> tuple[str, ...]:
    if ran.status is None:
        raise MpsSilent(f"it does not answer within {patience:g} s")
    if ran.status != 0:
        raise MpsSilent(f"it cannot be asked: {ran.said}")
    return tuple(ran.output.splitlines())
