"""The metadata files of claims: a folder for each claim by its uid, with a file for each of its requests.

Owns the names below the folder. A file is replaced as a whole: a container keeps the file with which it was started.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.files.container_label import label_for_containers
from nodeagent.edge.host.host_worker import HostWorker

METADATA_FOLDERS: Final = "claim-metadata"
"""Below the state directory."""
READ_LIMIT_BYTES: Final = 1 << 20
"""More than the devices that a claim can have."""
_SUFFIX: Final = ".json"
_MODE: Final = 0o755
_TIMEOUT_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 0.003
"""How long the loop stands still for the files while a container waits."""


class HostMetadataFiles:
    """The port `MetadataFiles` below one directory."""

    def __init__(self, root: Path, worker: WorkerThread) -> None:
        self._root, self._worker = root, HostWorker(worker, root, _TIMEOUT_SECONDS)

    def locate(self, uid: str, request: str) -> str:
        """The path of the file of a request."""
        return str(self._root / uid / f"{request}{_SUFFIX}")

    async def read(self, uid: str) -> Mapping[str, bytes]:
        """The present files of a claim, by request."""
        return await self._worker.run(
            lambda: self._read(uid), "reading the metadata of a claim", patience_seconds=_PATIENCE_SECONDS
        )

    async def write(self, uid: str, files: Mapping[str, bytes]) -> None:
        """Write files of a claim."""
        await self._worker.run(
            lambda: self._write(uid, files), "writing the metadata of a claim", patience_seconds=_PATIENCE_SECONDS
        )

    async def remove(self, uid: str) -> None:
        """Remove the files of a claim; fine when already gone."""
        await self._worker.run(lambda: self._remove(uid), "removing the metadata of a claim")

    async def list_uids(self) -> tuple[str, ...]:
        """The claims with a folder."""
        return await self._worker.run(lambda: self._list(self._root), "listing the metadata of claims")

    def _read(self, uid: str) -> dict[str, bytes]:
        folder = self._root / uid
        names = (name for name in self._list(folder) if name.endswith(_SUFFIX))
        return {
            name.removesuffix(_SUFFIX): read_bounded(folder / name, limit_bytes=READ_LIMIT_BYTES, follow_symlink=False)
            for name in names
        }

    def _write(self, uid: str, files: Mapping[str, bytes]) -> None:
        folder = self._root / uid
        for directory in (self._root, folder):
            try:
                directory.mkdir(mode=_MODE, exist_ok=True)
            except OSError as error:
                raise FileNotWritten(directory, "create it", error, replaced=False) from error
        for request, content in files.items():
            path = folder / f"{request}{_SUFFIX}"
            # After a power cut the file is written anew before a container has it.
            write_atomically(path, content, durable=False, only_writer=True)
            label_for_containers(path)

    def _remove(self, uid: str) -> None:
        folder = self._root / uid
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileNotWritten(folder, "remove it", error, replaced=False) from error

    @staticmethod
    def _list(directory: Path) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in os.scandir(directory)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise FileUnreadable(directory, error) from error
