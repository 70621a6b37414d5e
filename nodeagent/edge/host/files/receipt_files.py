"""The receipts' folders: files that a container reads, replaced whole within the folder that the container has mounted.

Refuses to wait for the disk: the files are made anew after a power cut, before a container has them again.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, HostError
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.files.container_label import label_for_containers
from nodeagent.edge.host.host_worker import HostWorker

READ_LIMIT_BYTES: Final = 1 << 16
_MODE: Final = 0o755
_TIMEOUT_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 0.003
"""How long the loop stands still for the files while a container waits."""


class HostReceiptFiles:
    """The port `ReceiptFiles` below one directory."""

    def __init__(self, root: Path, worker: WorkerThread) -> None:
        self._root, self._worker = root, HostWorker(worker, root, _TIMEOUT_SECONDS)

    def locate(self, name: str) -> str:
        """The path of a container's folder."""
        return str(self._root / name)

    async def open(self, name: str, files: Mapping[str, bytes], points: Collection[tuple[str, bool]]) -> None:
        """Make a container's folder with files and mount points."""
        await self._worker.run(
            lambda: self._open(name, files, points), "making a receipt's folder", patience_seconds=_PATIENCE_SECONDS
        )

    async def write(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        """Write the files of several containers, of each all that can be written."""
        await self._worker.run(lambda: self._write_all(files), "writing receipts")

    async def read(self) -> Mapping[str, Mapping[str, bytes]]:
        """The files of all containers."""
        return await self._worker.run(self._read_all, "reading receipts")

    async def list_names(self) -> tuple[str, ...]:
        """The names of existing folders."""
        return await self._worker.run(lambda: _list(self._root), "listing receipts")

    async def remove(self, name: str) -> None:
        """Remove a container's folder; fine when already gone."""
        await self._worker.run(lambda: self._remove(name), "removing a receipt")

    def _open(self, name: str, files: Mapping[str, bytes], points: Collection[tuple[str, bool]]) -> None:
        folder = self._root / name
        _make(self._root)
        self._write(name, files)
        for place, is_directory in points:
            path = folder / place
            try:
                (path if is_directory else path.parent).mkdir(mode=_MODE, parents=True, exist_ok=True)
                if not is_directory:
                    path.touch()
            except OSError as error:
                raise FileNotWritten(path, "create it", error, replaced=False) from error

    def _write_all(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        problems: list[HostError] = []
        _make(self._root)
        for name, content in files.items():
            try:
                self._write(name, content)
            except HostError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _write(self, name: str, files: Mapping[str, bytes]) -> None:
        folder = self._root / name
        _make(folder)
        label_for_containers(folder)
        for file, content in files.items():
            path = folder / file
            if _read(path) != content:
                write_atomically(path, content, durable=False, only_writer=True)
                label_for_containers(path)

    def _read_all(self) -> dict[str, dict[str, bytes]]:
        return {name: self._read_folder(name) for name in _list(self._root)}

    def _read_folder(self, name: str) -> dict[str, bytes]:
        found = {file: _read(self._root / name / file) for file in _list(self._root / name)}
        return {file: content for file, content in found.items() if content}

    def _remove(self, name: str) -> None:
        folder = self._root / name
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileNotWritten(folder, "remove it", error, replaced=False) from error


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=_MODE, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(directory, "create it", error, replaced=False) from error


def _read(path: Path) -> bytes:
    """The content; nothing for what is missing, no file or too large, and is to be replaced."""
    try:
        return read_bounded(path, limit_bytes=READ_LIMIT_BYTES, follow_symlink=False)
    except HostError:
        return b""


def _list(directory: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in os.scandir(directory)))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise FileUnreadable(directory, error) from error
