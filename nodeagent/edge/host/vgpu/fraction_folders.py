"""A folder for each container with fractions: limits, written by the agent, and usage, written by the library.

Owns the names of the files in a folder. A file of an unexpected kind is refused, never followed or mended: the folder
is root's, and a link there may be meant to make root write elsewhere.
"""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, VgpuFileInvalid
from nodeagent.edge.host.files.container_label import label_for_containers
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.vgpu.limits_file import (
    DeviceLimit,
    Limits,
    Measured,
    change_limits,
    create_limits,
    read_limits,
    write_measured,
)
from nodeagent.edge.host.vgpu.shared_file import bound_shared, create_shared
from nodeagent.edge.host.vgpu.usage_file import bound_usage, create_usage, read_usage
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import FractionLimit, LimitsFolder, MeasuredUtilization, UsageCheck
from nodeagent.model.ids import GpuUuid

FRACTION_FOLDERS: Final = "parts"
"""Below the state directory: folders of containers."""
SHARE_FOLDERS: Final = "shares"
"""Beside the folders of containers: folders of claims that share GPUs."""
LIMITS: Final = "limits"
USAGE: Final = "usage"
SHARED: Final = "shared"
"""Instead of the usage file for a claim: its containers have a usage file each, in memory of the container."""
MEMORY: Final = "usage"
"""Beside the folders: the place of a small tmpfs for files that containers write, mounted at installation."""
CORES_ALL: Final = 100
_PARTS: Final = 100
"""One percent in the file's unit of 1/10000."""
_MODE: Final = 0o755
_HEAD_BYTES: Final = 8
_TIMEOUT_SECONDS: Final = 5.0
_TRIES: Final = 3
"""A container takes longer to fill the memory again than the agent takes to create a file."""
_PATIENCE_SECONDS: Final = 0.003
"""How long the loop stands still for a write while a container waits."""


class HostFractionFolders:
    """The port `FractionFolders` below one directory."""

    def __init__(self, root: Path, worker: WorkerThread, *, of_claims: bool = False) -> None:
        """`of_claims` says that several containers may have the same folder."""
        self._root, self._of_claims = root, of_claims
        self._worker = HostWorker(worker, root, _TIMEOUT_SECONDS)
        self._memory = root.with_name(MEMORY)
        self._grown = dict[str, int]()

    async def prepare(self, name: str) -> None:
        """Make the folder."""
        await self._worker.run(lambda: self._prepare(name), "making the folder of a container")

    async def write(self, name: str, limits: Sequence[FractionLimit]) -> LimitsFolder:
        """Write the limits into the folder."""
        content = Limits(tuple(map(_render, limits)))
        return await self._worker.run(
            lambda: self._write(name, content), "writing the limits of a container", patience_seconds=_PATIENCE_SECONDS
        )

    async def remove(self, name: str) -> None:
        """Remove the folder."""
        await self._worker.run(lambda: self._remove(name), "removing the limits of a container")

    async def read(self, name: str) -> tuple[FractionLimit, ...]:
        """The limits of a container."""
        return await self._worker.run(lambda: self._read(name), "reading the limits of a container")

    async def measure(self, measures: Mapping[str, Sequence[MeasuredUtilization | None]]) -> None:
        """Write the utilization of GPUs for running containers."""
        await self._worker.run(lambda: self._measure(measures), "telling containers how busy their GPUs are")

    async def is_used(self, name: str) -> bool:
        """Whether the library has ever come up in a process of the container."""
        return await self._worker.run(lambda: self._is_used(name), "reading what a container uses")

    async def list_names(self) -> tuple[str, ...]:
        """The names of existing folders."""
        return await self._worker.run(self._list_names, "listing the limits of containers")

    async def bound_usage(self) -> UsageCheck:
        """Truncate files that containers have enlarged; the containers that did, and those with files on the disk."""
        return await self._worker.run(self._bound_usage, "looking at the size of what containers write")

    def _prepare(self, name: str) -> LimitsFolder:
        folder = self._root / name
        for directory in (self._root, folder):
            _make(directory)
        limits = folder / LIMITS
        written, is_shared = self._locate_written(name)
        if is_shared:
            if not _is_there(written):
                self._create(written, create_shared)
            label_for_containers(written)
            return LimitsFolder(limits=str(limits), shared=str(written))
        if not _is_there(written) or _is_blank(written):
            self._create(written, create_usage)
        label_for_containers(written)
        return LimitsFolder(limits=str(limits), usage=str(written))

    def _create(self, path: Path, create: Callable[[Path], None]) -> None:
        """Create a file; where containers have filled the memory, truncate files at once, before the next check."""
        for left in reversed(range(_TRIES)):
            try:
                create(path)
            except FileNotWritten as error:
                if error.errno != errno.ENOSPC or not left:
                    raise
                with suppress(NodeagentError):  # the next check reports a file that cannot be truncated
                    self._bound_usage()
            else:
                return

    def _write(self, name: str, content: Limits) -> LimitsFolder:
        folder = self._prepare(name)
        limits = Path(folder.limits)
        if not _is_there(limits) or _is_blank(limits):
            create_limits(limits, content)
        elif not _says(limits, content):
            change_limits(limits, content)
        label_for_containers(limits)
        return folder

    def _remove(self, name: str) -> None:
        folder = self._root / name
        try:
            # First, as no code would find the file without the folder.
            for place in list_in_memory(folder):
                place.unlink(missing_ok=True)
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileNotWritten(folder, "remove it", error, replaced=False) from error

    def _read(self, name: str) -> tuple[FractionLimit, ...]:
        limits = self._root / name / LIMITS
        return tuple(map(_parse, read_limits(limits).devices)) if _is_there(limits) else ()

    def _measure(self, measures: Mapping[str, Sequence[MeasuredUtilization | None]]) -> None:
        problems: list[NodeagentError] = []
        for name, told in measures.items():
            limits = self._root / name / LIMITS
            if not limits.exists():
                continue  # the container has ended meanwhile
            for slot, each in enumerate(told):
                if each is None:
                    continue
                try:
                    write_measured(limits, slot, Measured(each.number, each.own * _PARTS, each.total * _PARTS))
                except NodeagentError as error:
                    problems.append(error)
        if problems:
            raise problems[0]

    def _is_used(self, name: str) -> bool:
        usage = read_usage(self._locate_written(name)[0])
        return bool(usage.processes or usage.passing_starts or usage.refusing_starts)

    def _list_names(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in os.scandir(self._root)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise FileUnreadable(self._root, error) from error

    def _locate_written(self, name: str) -> tuple[Path, bool]:
        """The file that a container writes, and whether all containers of a claim write the same file.

        Containers keep an existing file, be the file on the disk or of the former form.
        """
        files = (USAGE, SHARED) if self._of_claims else (USAGE,)
        for file in files:
            for place in (self._root / name / file, _name_in_memory(self._root / name, file)):
                if os.path.lexists(place):
                    return place, file == SHARED
        new = files[-1]
        place = _name_in_memory(self._root / name, new) if self._memory.is_mount() else self._root / name / new
        return place, new == SHARED

    def _bound_usage(self) -> UsageCheck:
        names, unbounded, problems = self._list_names(), list[str](), list[NodeagentError]()
        for name in names:
            written, is_shared = self._locate_written(name)
            try:
                size = bound_shared(written) if is_shared else bound_usage(written)
            except NodeagentError as error:
                problems.append(error)
                continue
            if size is None:
                continue  # the container has no file yet, or has ended meanwhile
            if size > 0:
                self._grown[name] = max(size, self._grown.get(name, 0))
            if written.parent != self._memory:
                unbounded.append(name)
        self._grown = {name: size for name, size in self._grown.items() if name in names}
        if problems:
            raise problems[0]
        return UsageCheck(grown=dict(self._grown), unbounded=tuple(unbounded))


def list_in_memory(folder: Path) -> tuple[Path, ...]:
    """Possible files of a folder outside the folder, in memory."""
    return tuple(_name_in_memory(folder, file) for file in (USAGE, SHARED))


def _name_in_memory(folder: Path, file: str) -> Path:
    root = folder.parent
    return root.with_name(MEMORY) / f"{root.name}-{folder.name}{'' if file == USAGE else f'.{file}'}"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=_MODE)
    except FileExistsError:
        if not stat.S_ISDIR(directory.lstat().st_mode):
            error = NotADirectoryError(20, "something that is no directory is in its place: remove it")
            raise FileNotWritten(directory, "create it", error, replaced=False) from None
    except OSError as error:
        raise FileNotWritten(directory, "create it", error, replaced=False) from error


def _is_there(path: Path) -> bool:
    """Whether the file exists; another kind of file is refused.

    Raises:
        FileNotWritten: A link, a directory or a device is in the file's place.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise FileUnreadable(path, problem) from problem
    if not stat.S_ISREG(status.st_mode):
        error = FileExistsError(17, "something that is no file is in its place: remove it")
        raise FileNotWritten(path, "write it", error, replaced=False)
    return True


def _is_blank(path: Path) -> bool:
    """Whether the file is empty or zeros, as after a power cut: no write here waits for the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return not os.read(descriptor, _HEAD_BYTES).strip(b"\0")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FileUnreadable(path, error) from error


def _says(path: Path, limits: Limits) -> bool:
    try:
        return read_limits(path) == limits
    except VgpuFileInvalid:
        return False


def _render(limit: FractionLimit) -> DeviceLimit:
    is_soft = limit.cores is not None and limit.cores_max is not None and limit.cores_max > limit.cores
    return DeviceLimit(
        uuid=limit.gpu,
        memory_bytes=limit.memory_bytes,
        core_percent=limit.cores,
        soft=is_soft,
        context_bytes=limit.context_bytes,
    )


def _parse(limit: DeviceLimit) -> FractionLimit:
    """The inverse of `_render`, but for how far a soft limit goes."""
    return FractionLimit(
        gpu=GpuUuid(limit.uuid),
        memory_bytes=limit.memory_bytes,
        cores=limit.core_percent,
        cores_max=CORES_ALL if limit.soft else limit.core_percent,
        context_bytes=limit.context_bytes,
    )
