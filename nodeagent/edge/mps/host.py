"""The port `MpsHost` on this host: starts daemons that outlive the agent, finds those that did, and talks to them.

Owns their directories, their command line and environment, and which process is whose.
Refuses to be a daemon's parent: an agent that is killed or replaced must not take the work of pods with it.
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
"""So long a log is cut though what was just added is lost: whoever reaches a daemon's pipe could fill the disk."""
_LOGS: Final = ("control.log", "server.log")
_QUIT: Final = "quit"
_RECEIPT: Final = "get_default_active_thread_percentage"
"""What is always answered: without its answer the daemon has read nothing, though the front end may end well."""
_TURN_SECONDS: Final = 0.05
_NOT_SENT: Final = "Cannot send command"


class MpsHostSettings(Struct, frozen=True):
    """Where the driver is, and how patient the agent is with its daemons."""

    find_root: Callable[[], Path]
    """The driver's root as this process sees it; it may come later than the agent."""
    program: Path | None = None
    memory_bytes: int | None = None
    """Of /dev/shm of daemons and clients, where it is their own; `None` for as much as its file system has."""
    start_timeout_seconds: float = 10.0
    answer_timeout_seconds: float = 5.0


class HostMps:
    """Belongs to the event loop's thread; files and processes are looked at in another."""

    def __init__(self, settings: MpsHostSettings, worker: WorkerThread) -> None:
        self._settings, self._worker = settings, worker
        self._read: dict[Path, int] = {}
        self._turn = anyio.Lock()
        self._log = get_logger(component="mps")

    async def find(self, place: MpsPlace) -> int | None:
        """The daemon that listens in this place."""
        return await self._look(lambda: find_daemon(place.pipes), "look for a daemon", None)

    async def start(self, place: MpsPlace, gpus: Sequence[GpuUuid]) -> int:
        """Start one, with nothing of the agent's environment."""
        await self._prepare(place)
        for name in _LOGS:
            # What is written from now on is read, and nothing of a daemon before.
            self._read[place.logs / name] = _measure(place.logs / name)
        environment = {
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            "CUDA_MPS_PIPE_DIRECTORY": str(place.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(place.logs),
        }
        argv = self._command(place, "-d")
        try:
            ran = await run(argv, environment, "", self._settings.start_timeout_seconds)
        except OSError as error:
            raise MpsRefused(f"cannot start {argv[0]}: {describe_os_error(error)}") from error
        if ran.status is None:
            await self._clear_up(place)
            raise MpsRefused(f"{PROGRAM} did not come up within {self._settings.start_timeout_seconds:g} s")
        if ran.status != 0:
            raise MpsRefused(f"{PROGRAM} ended with {ran.status}: {ran.said}")
        pid = await self.find(place)
        if pid is None:
            raise MpsRefused(f"{PROGRAM} was started and is gone: {ran.said}")
        return pid

    async def ask(self, place: MpsPlace, commands: Sequence[str], timeout_seconds: float = 0.0) -> tuple[str, ...]:
        """Through the front end, which is killed when it takes too long, and tried again while another is served."""
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
            # One that is cut off by the deadline after others were turned away is no other case.
            is_busy = _was_turned_away(ran, has_receipt=not is_last) or (is_busy and ran.status is None)
            if not is_busy:
                answer = _read_answer(ran, patience)
                return answer[: len(answer) - len(receipt)]
            if anyio.current_time() + _TURN_SECONDS >= deadline:
                raise MpsSilent("it serves one front end at a time, and another one does not end")
            await anyio.sleep(_TURN_SECONDS)

    async def wait_end(self, pid: int) -> None:
        """Return as soon as it has ended."""
        await wait_process(pid)

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:
        """By what the kernel says of them."""
        nobody: frozenset[int] = frozenset()
        return await self._look(lambda: list_processes(pid, clients), "look for servers and clients", nobody)

    async def kill(self, pid: int) -> None:
        """The servers first: they are what holds the GPU."""
        nobody: tuple[int, ...] = ()
        for process in await self._look(lambda: list_family(pid), "list the servers of a daemon", nobody):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:
        """The newest lines of its logs, which are cut when they are long."""
        lines: list[str] = []
        for name in _LOGS:
            path = place.logs / name
            known = self._read.get(path)
            reading = partial(_read_from, path, known)
            text, self._read[path] = await self._look(reading, "read the log of a daemon", ("", known or 0))
            lines += text.splitlines()
        return tuple(lines)

    async def remove(self, place: MpsPlace) -> None:
        """Its own directory, and those of all when none is left."""
        for name in _LOGS:
            self._read.pop(place.logs / name, None)
        async with self._turn:
            await self._do(lambda: _remove(place), "take away the directory of a daemon")
            await self._remove_shared(place.root)

    async def remove_shared(self, root: Path) -> None:
        """Remove the directory and marker that all daemons share, when none is left."""
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
        """Directories; /dev/shm of a size of its own where the agent may, else it is part of the file system below."""
        async with self._turn:
            # Nothing is mounted over what a daemon has already.
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
        """A daemon that came up after its deadline is nobody's."""
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
        """What is seen; where nothing can be, this otherwise."""
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
    """The program as a process sees it whose root is the driver's."""
    for place in _PLACES:
        if resolve(root or "/", f"{place}/{PROGRAM}") is not None:
            return f"/{place}/{PROGRAM}"
    raise MpsRefused(
        f"there is no {PROGRAM} below {root or '/'}: install it with the driver, or name it in `mps.program`"
    )


def _make_directories(place: MpsPlace) -> None:
    # First of all: by it a later agent, set otherwise, and an uninstall know that there is something to be taken back.
    place.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    (place.root / MARKER).touch()
    for directory in (place.pipes, place.logs):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    if place.has_own_memory:
        place.shared_memory.mkdir(mode=0o1777, parents=True, exist_ok=True)
        # Whatever the process's own mask is.
        place.shared_memory.chmod(0o1777)
    label_for_containers(place.pipes)


def _remove(place: MpsPlace) -> None:
    if place.directory.is_dir():
        shutil.rmtree(place.directory)
    # A resource's name has a directory of its own for its domain.
    domain = place.directory.parent
    if domain != place.root and domain.is_dir() and not any(domain.iterdir()):
        domain.rmdir()


def _remove_root(root: Path) -> None:
    shutil.rmtree(root / "shm", ignore_errors=not (root / "shm").exists())
    (root / MARKER).unlink(missing_ok=True)
    # In a pod it is a mount of the host's, which goes with the pod.
    if not root.is_mount():
        root.rmdir()


def _is_last(root: Path) -> bool:
    """Whether nothing is left but what all daemons share."""
    return root.is_dir() and {one.name for one in root.iterdir()} <= {"shm", MARKER}


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read_from(path: Path, start: int | None) -> tuple[str, int]:
    """What was added; of a log that nobody has read so far, nothing. A long one is empty afterwards."""
    try:
        with path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = size if start is None else start if start <= size else 0
            file.seek(max(start, size - _LOG_LIMIT))
            text = file.read(_LOG_LIMIT).decode("utf-8", "replace")
            # The daemon appends, wherever the end is. What it has just added is read before it is cut, next time; but
            # who never stops adding does not keep it from being cut.
            end = file.seek(0, os.SEEK_END)
            if size > _LOG_LIMIT and (end == size or end > FLOOD_LIMIT):
                file.truncate(0)
                size = 0
    except FileNotFoundError:
        return "", 0
    return text, size


def _was_turned_away(ran: Ran, *, has_receipt: bool) -> bool:
    """Whether the daemon was serving another front end: this one has said nothing, or that it could not send."""
    if ran.status is None:
        return False
    return _NOT_SENT in ran.output or (has_receipt and not ran.output)


def _read_answer(ran: Ran, patience: float) -> tuple[str, ...]:
    if ran.status is None:
        raise MpsSilent(f"it does not answer within {patience:g} s")
    if ran.status != 0:
        raise MpsSilent(f"it cannot be asked: {ran.said}")
    return tuple(ran.output.splitlines())
