"""The port `ShimHost`: the runtime shim's program, its names and its table, on this host.

Owns the shim's further names: links to the program, never made over a foreign program.
Blocking work is done in a worker thread and bounded in time.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, HostError
from nodeagent.edge.host.files.atomic_file import identify, read_bounded, remove_stale_temporaries
from nodeagent.edge.host.files.host_program import BUILT, HostProgram, Program, link_program, locate_shared
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.table_file import ON_MISSING_FILE, TABLE_FILE, write_on_missing, write_table
from nodeagent.model.shim import OnMissing, ShimTable
from nodeagent.model.shim_names import SHIM_PROGRAM

SHIM: Final = Program(built=BUILT / SHIM_PROGRAM, what="the runtime shim", without="set `runtime.shim: false`")
_MARKS: Final = ("sys/kernel/random/boot_id", "module/nvidia/version")
_TIMEOUT_SECONDS: Final = 10.0
_DIRECTORY_MODE: Final = 0o755
_FILE_MODE: Final = 0o600
_MARK_LIMIT: Final = 4096


class HostShim:
    """The runtime shim of one host; `shared` is a directory that this process has under the host's own name."""

    def __init__(
        self,
        worker: WorkerThread,
        *,
        program: Program = SHIM,
        host: HostPaths | None = None,
        shared: Path | None = None,
        proc_root: Path = Path("/proc"),
        sys_root: Path = Path("/sys"),
    ) -> None:
        self._worker, self._host, self._shared = worker, host or HostPaths(), shared
        self._program = HostProgram(worker, program, host=self._host, shared=shared)
        self._marks = [root / name for root, name in zip((proc_root, sys_root), _MARKS, strict=True)]
        self._written: tuple[Path, ShimTable, OnMissing, list[tuple[int, ...]]] | None = None

    async def install(self, program: Path, names: Sequence[Path] = ()) -> bool:
        """Put our program in place, run the program once, and link each of the names to the program."""
        is_new = await self._program.install(program)
        await self._program.check(program)
        linked = await self._work_on(program).run(lambda: self._link(program, names), "naming the runtime shim")
        return is_new or linked

    async def read_marks(self) -> tuple[tuple[str, str], ...]:
        """Values that a reboot, or another driver, changes."""
        return await self._work_on(self._marks[0]).run(self._read_marks, "looking at driver and boot")

    async def write(self, directory: Path, table: ShimTable, on_missing: OnMissing) -> bool:
        """Put exactly this table in place; foreign changes since the last write are overwritten."""
        place = locate_shared(directory, self._host, self._shared)
        what = "writing the runtime shim's table"
        return await self._work_on(directory).run(lambda: self._write(place, table, on_missing), what)

    async def remove(self, directory: Path) -> bool:
        """Remove the table, and the setting for a missing table."""
        place = locate_shared(directory, self._host, self._shared)
        return await self._work_on(directory).run(lambda: _remove(place), "removing the runtime shim's table")

    def _link(self, program: Path, names: Sequence[Path]) -> bool:
        made = [name for name in names if self._link_one(name, program)]
        return bool(made)

    def _link_one(self, name: Path, program: Path) -> bool:
        # The link itself is ours, so only links in the directory's path are followed.
        place = locate_shared(name.parent, self._host, self._shared) / name.name
        return link_program(name, place, program, "shim.nvidia_name_dir")

    def _read_marks(self) -> tuple[tuple[str, str], ...]:
        found = []
        for place in self._marks:
            with suppress(HostError):  # without a driver module no version can change
                text = read_bounded(place, limit_bytes=_MARK_LIMIT).decode("utf-8", "replace")
                found.append((self._name_on_host(place), text.partition("\n")[0]))
        return tuple(found)

    def _name_on_host(self, place: Path) -> str:
        root = self._host.root
        return f"/{place.relative_to(root)}" if place.is_relative_to(root) else str(place)

    def _write(self, directory: Path, table: ShimTable, on_missing: OnMissing) -> bool:
        paths = [directory / TABLE_FILE, directory / ON_MISSING_FILE]
        if self._written == (directory, table, on_missing, _identify(paths)):
            return False
        try:
            directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            for path in paths:
                # A replaced file keeps its mode and owner, and the shim trusts no file that other users may write.
                if path.is_symlink() or not _is_private(path):
                    path.unlink(missing_ok=True)
                remove_stale_temporaries(path)
        except OSError as error:
            raise FileNotWritten(directory, "make it fit for its files", error, replaced=False) from error
        before = _read_both(paths)
        write_on_missing(directory, on_missing)
        write_table(directory, table)
        self._written = (directory, table, on_missing, _identify(paths))
        return _read_both(paths) != before

    def _work_on(self, path: Path) -> HostWorker:
        return HostWorker(self._worker, path, _TIMEOUT_SECONDS)


def list_table_files(directory: Path) -> tuple[Path, ...]:
    """The agent's files in the directory of the table."""
    return (directory / TABLE_FILE, directory / ON_MISSING_FILE)


def _remove(directory: Path) -> bool:
    paths = [path for path in list_table_files(directory) if os.path.lexists(path)]
    try:
        for path in paths:
            path.unlink()
    except OSError as error:
        raise FileNotWritten(directory, "remove what is in it", error, replaced=False) from error
    with suppress(OSError):  # the directory has a foreign file
        directory.rmdir()
    return bool(paths)


def _is_private(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return True
    return status.st_uid == os.geteuid() and status.st_mode & 0o7777 == _FILE_MODE


def _identify(paths: Iterable[Path]) -> list[tuple[int, ...]]:
    return [identify(path, follow_symlink=False) for path in paths]


def _read_both(paths: Iterable[Path]) -> list[bytes]:
    found = []
    for path in paths:
        try:
            found.append(read_bounded(path))
        except HostError:
            found.append(b"")
    return found
