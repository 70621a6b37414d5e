"""The audit log on disk: a line of JSON for each change, in the current file and the previous file.

Owns a thread, so that a hanging disk delays no caller, and the size: a full file replaces the previous file. The queue
is bounded; changes without room there are counted in the next line.
A repeated failure is written once, until the same change succeeds or fails for another reason.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Full, Queue
from typing import Final

from msgspec import DecodeError, json
from msgspec.structs import replace

from nodeagent.core.log.audit import DONE, Change, keeping
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded

NAME: Final = "audit.jsonl"
BEFORE_NAME: Final = "audit.jsonl.1"
FILE_BYTES_MAX: Final = 4 << 20
"""Some twenty thousand changes."""
_OPEN: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_WAITING_MAX: Final = 1000
_FAILURES_MAX: Final = 256
_CLOSE_SECONDS: Final = 1.0

_log = get_logger(component="audit")
_decoder: Final = json.Decoder(Change)


@contextmanager
def open_audit(directory: Path) -> Iterator[None]:
    """Keep every change of this block in the audit log of a state directory."""
    file = AuditFile(directory)
    with keeping(file.keep):
        try:
            yield
        finally:
            file.close()


class AuditFile:
    """Appends to the log, in a thread of its own."""

    def __init__(self, directory: Path, *, bytes_max: int = FILE_BYTES_MAX, waiting_max: int = _WAITING_MAX) -> None:
        self._path, self._before, self._bytes_max = directory / NAME, directory / BEFORE_NAME, bytes_max
        self._waiting: Queue[Change | None] = Queue(waiting_max)
        self._missed = 0
        self._failures: dict[tuple[str, str, str], str] = {}
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def keep(self, change: Change) -> None:
        """Queue a change for writing; where the disk is too slow, the change is only counted."""
        try:
            self._waiting.put_nowait(replace(change, missed=self._missed))
        except Full:
            self._missed += 1
        else:
            self._missed = 0

    def close(self) -> None:
        """Write the queued changes, unless the disk hangs."""
        try:
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        except Full:
            return
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (change := self._waiting.get()) is not None:
            if not self._is_repeated(change):
                try:
                    self._write(json.encode(change) + b"\n")
                except OSError as error:
                    _log.warning("change_not_noted", path=str(self._path), error=error, change=change.action)

    def _is_repeated(self, change: Change) -> bool:
        what = (change.kind, change.name, change.action)
        before = self._failures.pop(what, None)
        if change.outcome == DONE:
            return False
        self._failures[what] = change.outcome
        if len(self._failures) > _FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
        return change.outcome == before

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self._path, _OPEN, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > self._bytes_max:
                self._path.replace(self._before)
                full, descriptor = descriptor, os.open(self._path, _OPEN, 0o600)
                os.close(full)
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def read_audit(directory: Path) -> tuple[Change, ...]:
    """Every change in the log, the oldest first; a line that a power cut has truncated is left out."""
    return tuple(change for name in (BEFORE_NAME, NAME) for change in _read(directory / name))


def _read(path: Path) -> Iterator[Change]:
    try:
        content = read_bounded(path, follow_symlink=False)
    except FileUnreadable as error:
        if error.is_absent:
            return
        raise
    for line in content.splitlines():
        try:
            yield _decoder.decode(line)
        except DecodeError:
            continue
