"""Writes a runtime's configuration files, and restores the content from before the agent's changes.

Owns the record of our changes: for each file the content before our first change and the fingerprint of our content; a
further entry where we have written over a file that others had edited. Directories made for a file are on record with
the file, and are removed with the file when empty.
The record is written before the file, so that a crash between the two can still be undone.
Symbolic links stay links, and the link's target is replaced; but a link in place of a file of the agent's own is
another writer's work, and the target is never touched.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final

from msgspec import DecodeError, json
from msgspec.structs import replace

from nodeagent.core.log.audit import noting
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.container_runtime.errors import BackupUnreadable, FileChangedMeanwhile
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ports import Withdraw
from nodeagent.model.runtime import EditedFile, FileChange, Restored, is_own_file
from nodeagent.model.values import Value

RECORD_NAME: Final = "runtime-changes.json"
_DIRECTORY_MODE: Final = 0o755
_RECORD_MODE: Final = 0o600


_log = get_logger(component="runtime")


class _Outcome(Enum):
    """The outcome of restoring a file."""

    GIVEN_BACK = auto()
    TAKEN_OUT = auto()
    KEPT = auto()


class _Entry(Value, frozen=True):
    path: str
    before: str | None
    """Base64 of the content before our first change; `None` when there was no file."""
    after: tuple[str, ...] = ()
    """Fingerprints of our content, newest last; several while a new content replaces an older one."""
    ours: str | None = None
    """Base64 of our newest content; our changes are the differences from `before`."""
    directories: tuple[str, ...] = ()
    """The directories made for the file, the innermost first."""


class RuntimeFiles:
    """Changes configuration files with a record of the content before.

    Every method raises `BackupUnreadable` for a damaged record, with nothing written.
    """

    def __init__(self, state_dir: Path, host: HostPaths | None = None) -> None:
        self._record, self._host = state_dir / RECORD_NAME, host or HostPaths()

    def apply(self, changes: Sequence[FileChange]) -> None:
        """Write all files, or none.

        Raises:
            FileChangedMeanwhile: a file has changed since the planning; nothing was written.
            HostError: a file cannot be written; files written before are restored.
        """
        for change in changes:
            if self._is_foreign_link(change.path) or self._host.read(change.path) != change.before:
                raise FileChangedMeanwhile(change.path)
        known = self._load()
        made = {change.path: self._host.list_missing_directories(change.path) for change in changes if change.after}
        self._store(_note_changes(known, changes, made))
        done: list[FileChange] = []
        try:
            for change in changes:
                self._write(change.path, change.after)
                done.append(change)
        except FileNotWritten:
            for change in reversed(done):
                self._write(change.path, change.before)
            for change in reversed(changes):
                self._host.remove_empty(made.get(change.path, ()))
            self._store(known)
            raise

    def undo(self, changes: Iterable[FileChange]) -> None:
        """Put back the content from before the changes, because the changes failed in their purpose."""
        directories = {entry.path: entry.directories for entry in self._load()}
        for change in changes:
            if not self._is_foreign_link(change.path) and self._host.read(change.path) == change.after:
                self._write(change.path, change.before)
                self._host.remove_empty(directories.get(change.path, ()))

    def restore(self, withdraw: Withdraw) -> Restored:
        """Restore each file byte for byte; from files that others have edited remove our changes only."""
        entries, kept = self._load(), list[_Entry]()
        outcomes: dict[str, _Outcome | None] = dict.fromkeys(entry.path for entry in entries)
        # Newest first: the restored content may still have our changes from before others edited the file.
        for entry in reversed(entries):
            if outcomes[entry.path] is not _Outcome.KEPT:
                outcomes[entry.path] = self._give_back(entry, withdraw) or outcomes[entry.path]
            if outcomes[entry.path] is _Outcome.KEPT:
                kept.insert(0, entry)
            else:
                self._host.remove_empty(entry.directories)
        self._store(kept)
        paths = {each: tuple(path for path, found in outcomes.items() if found is each) for each in _Outcome}
        return Restored(
            given_back=paths[_Outcome.GIVEN_BACK], taken_out=paths[_Outcome.TAKEN_OUT], kept=paths[_Outcome.KEPT]
        )

    def _write(self, path: str, content: bytes | None) -> None:
        with noting("file", path, "remove it" if content is None else "write it"):
            self._replace(path, content)

    def _replace(self, path: str, content: bytes | None) -> None:
        # A link may have been put there since the last check.
        self._host.write(path, content, follow_link=not is_own_file(path))

    def _is_foreign_link(self, path: str) -> bool:
        return is_own_file(path) and self._host.is_link(path)

    def _give_back(self, entry: _Entry, withdraw: Withdraw) -> _Outcome | None:
        """Restore a file, or remove our changes from an edited file; `None` when nothing is to do."""
        if self._is_foreign_link(entry.path):
            return _Outcome.KEPT
        now = self._host.read(entry.path)
        before = base64.b64decode(entry.before) if entry.before is not None else None
        if now == before:
            if entry.directories:
                # Temporary files of a killed writer would keep the directories.
                self._replace(entry.path, before)
            return None
        if now is None or _fingerprint(now) in entry.after:
            self._write(entry.path, before)
            return _Outcome.GIVEN_BACK
        if entry.ours is None:
            return _Outcome.KEPT
        edited = EditedFile(path=entry.path, before=before, ours=base64.b64decode(entry.ours), now=now)
        try:
            content = withdraw(edited)
        except NodeagentError as error:
            _log.warning("runtime_file_kept", path=entry.path, reason=str(error))
            return _Outcome.KEPT
        if content != now:
            self._write(entry.path, content)
        return _Outcome.TAKEN_OUT

    def list_paths(self) -> tuple[str, ...]:
        """The files changed by the agent."""
        return tuple(dict.fromkeys(entry.path for entry in self._load()))

    def _load(self) -> tuple[_Entry, ...]:
        try:
            return json.decode(read_bounded(self._record), type=tuple[_Entry, ...])
        except FileUnreadable as error:
            if error.is_absent:
                return ()
            raise
        except (DecodeError, ValueError) as error:
            raise BackupUnreadable(self._record, str(error)) from error

    def _store(self, entries: Iterable[_Entry]) -> None:
        kept = tuple(entries)
        if not kept and not self._record.exists():
            return
        if not kept:
            HostPaths().write(str(self._record), None)
            return
        _make_directory(self._record)
        write_atomically(self._record, json.encode(kept), mode=_RECORD_MODE, only_writer=True)


def _note_changes(
    known: Iterable[_Entry], changes: Iterable[FileChange], made: Mapping[str, tuple[str, ...]]
) -> tuple[_Entry, ...]:
    entries: dict[str, tuple[_Entry, ...]] = {}
    for entry in known:
        entries[entry.path] = (*entries.get(entry.path, ()), entry)
    for change in changes:
        entries[change.path] = _note_change(entries.get(change.path, ()), change, made.get(change.path, ()))
    return tuple(entry for each in entries.values() for entry in each)


def _note_change(known: tuple[_Entry, ...], change: FileChange, made: tuple[str, ...]) -> tuple[_Entry, ...]:
    """The record's entries of a file, oldest first; several entries where others have edited our content."""
    after = (_fingerprint(change.after),) if change.after is not None else ()
    ours = base64.b64encode(change.after).decode() if change.after is not None else None
    if known and change.before is not None and _fingerprint(change.before) in known[-1].after:
        # Our content over our content: the content before our first change still counts.
        return (*known[:-1], replace(known[-1], after=(*known[-1].after, *after), ours=ours))
    before = base64.b64encode(change.before).decode() if change.before is not None else None
    # Where others restored a former content, or removed the file, later entries no longer apply.
    befores = [entry.before for entry in known]
    rest = known[: befores.index(before)] if before in befores else known if before is not None else ()
    # The directory made for a file may have outlived the file.
    directories = tuple(dict.fromkeys((*made, *(path for entry in known[len(rest) :] for path in entry.directories))))
    return (*rest, _Entry(path=change.path, before=before, after=after, ours=ours, directories=directories))


def _make_directory(path: Path) -> None:
    try:
        path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(path, "create its directory", error, replaced=False) from error


def _fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
