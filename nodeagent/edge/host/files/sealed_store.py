"""A sealed file for the event loop: file work in a thread of its own, bounded in time.

Owns the thread. Refuses to raise for a failing disk: the owner of the state goes on without the file and says so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.sealed_file import SealedFile, Unsealed
from nodeagent.model.values import Value

T = TypeVar("T")

_BOOT_ID = "sys/kernel/random/boot_id"

READ_SECONDS = 10.0
WRITE_SECONDS = 1.0
"""How long a change may wait for the disk: the worse the news, the less it may wait for ever."""


class Stored(Value, frozen=True):
    """The last agent's body, and the present boot."""

    body: bytes | None
    boot_id: str
    """Empty where the kernel does not say."""
    troubles: tuple[str, ...] = ()


class SealedStore:
    """One sealed file; belongs to the event loop's thread."""

    def __init__(
        self,
        file: SealedFile,
        *,
        proc_root: Path = Path("/proc"),
        read_seconds: float = READ_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self._file, self._proc_root = file, proc_root
        self._read_seconds, self._write_seconds = read_seconds, write_seconds
        self._worker = WorkerThread(file.path.name)

    async def read(self) -> Stored:
        """The newest whole body; a hanging disk counts as an empty disk, and is reported in `troubles`."""
        try:
            return await self._run(self._read, self._read_seconds, "read stored state")
        except WorkerError as error:
            return Stored(body=None, boot_id="", troubles=(str(error),))

    async def write(self, body: bytes) -> str:
        """Make the body durable; empty on success, else the reason of the failure."""
        try:
            await self._run(lambda: self._file.write(body), self._write_seconds, "write state")
        except (FileNotWritten, WorkerError) as error:
            return str(error)
        return ""

    async def discard(self, reason: str) -> str:
        """Move the file aside; returns the outcome in words."""
        try:
            return await self._run(lambda: self._file.discard(reason), self._read_seconds, "move state aside")
        except WorkerError as error:
            return str(error)

    async def _run(self, call: Callable[[], T], timeout_seconds: float, what: str) -> T:
        # Shielded, because the thread of a cancelled call is set aside as stuck.
        with anyio.CancelScope(shield=True):
            outcome = await self._worker.run(call, timeout_seconds=timeout_seconds, what=what)
        return outcome  # noqa: RET504  # not inside the block: a scope can swallow exceptions raised there

    def close(self) -> None:
        """Let the thread end."""
        self._worker.close()

    def _read(self) -> Stored:
        found: Unsealed = self._file.read()
        try:
            boot_id = read_boot_id(self._proc_root)
        except FileUnreadable as error:
            return Stored(body=found.body, boot_id="", troubles=(*found.troubles, str(error)))
        return Stored(body=found.body, boot_id=boot_id, troubles=found.troubles)


def read_boot_id(proc_root: Path = Path("/proc")) -> str:
    """A UUID that is new after each boot, within which device numbers, holders and places in the kernel log are valid.

    Raises:
        FileUnreadable: /proc has no boot id, as Linux always has unless /proc is not the real one.
    """
    return read_bounded(proc_root / _BOOT_ID, limit_bytes=4096).decode("ascii", "replace").strip()
