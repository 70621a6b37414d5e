"""A small state file that is either whole or not used at all, with the previous copy as a second chance.

Owns the seal (a first line with name, version, length and checksum of the raw body), the previous copy, and the moving
aside of files that are damaged or from a newer version. All calls block; on the event loop they belong in a worker
thread. Refuses to know the body's meaning.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

from nodeagent.edge.host.errors import FileTooLarge, FileUnreadable, describe_os_error
from nodeagent.edge.host.files.atomic_file import read_bounded, remove_stale_temporaries, write_atomically
from nodeagent.model.values import Value

ASIDE_KEPT = 3
_MODE = 0o600
_SEAL = re.compile(rb"(?P<name>[a-z-]{1,64}) (?P<version>\d{1,9}) (?P<length>\d{1,9}) (?P<sum>[0-9a-f]{64})\n")
_ASIDE = ".aside."


class Unsealed(Value, frozen=True):
    """The result of a reading."""

    body: bytes | None
    """`None` without a usable file."""
    troubles: tuple[str, ...] = ()
    """Unusable files with reasons, in words; empty when all is well, or without a file ever."""


def seal(name: bytes, version: int, body: bytes) -> bytes:
    """The first line of a file with this body."""
    return b"%s %d %d %s\n" % (name, version, len(body), hashlib.sha256(body).hexdigest().encode())


class SealedFile:
    """One file and its previous copy; for a single writer."""

    def __init__(self, path: Path, name: str, version: int) -> None:
        self.path, self._name, self._version = path, name.encode(), version
        self._previous = path.with_name(f"{path.name}.previous")

    def read(self) -> Unsealed:
        """The newest whole body; a damaged file is moved aside for people to examine."""
        troubles: list[str] = []
        with suppress(FileUnreadable):  # a leftover is the smaller evil, and the directory may not exist yet
            remove_stale_temporaries(self.path)
        for path in (self.path, self._previous):
            body = self._read_one(path, troubles)
            if body is not None:
                return Unsealed(body=body, troubles=tuple(troubles))
        return Unsealed(body=None, troubles=tuple(troubles))

    def write(self, body: bytes) -> None:
        """Replace the body durably, and keep the previous copy.

        Raises:
            FileNotWritten: The old body stays, or the new body may not survive a power cut.
        """
        self._keep_previous()
        write_atomically(self.path, seal(self._name, self._version, body) + body, mode=_MODE)

    def discard(self, reason: str) -> str:
        """Move the file aside, because its owner cannot use the body; returns the outcome in words."""
        return self._move_aside(self.path, reason)

    def _read_one(self, path: Path, troubles: list[str]) -> bytes | None:
        try:
            content = read_bounded(path, follow_symlink=False)
        except FileUnreadable as error:
            if not error.is_absent:
                troubles.append(str(error))
            return None
        except FileTooLarge as error:
            troubles.append(self._move_aside(path, str(error)))
            return None
        body, reason = self._open_seal(content)
        if body is None:
            troubles.append(self._move_aside(path, reason))
        return body

    def _open_seal(self, content: bytes) -> tuple[bytes | None, str]:
        seal = _SEAL.match(content)
        if seal is None or seal["name"] != self._name:
            return None, "its first line is damaged"
        body = content[seal.end() :]
        if int(seal["version"]) != self._version:
            return None, f"it is of version {int(seal['version'])}, this agent reads version {self._version}"
        if len(body) != int(seal["length"]):
            return None, f"it has {len(body)} bytes instead of {int(seal['length'])}"
        if hashlib.sha256(body).hexdigest().encode() != seal["sum"]:
            return None, "its checksum is wrong"
        return body, ""

    def _keep_previous(self) -> None:
        """A second name for the old content; on failure only the second chance is lost."""
        fresh = self._previous.with_name(f"{self._previous.name}.new")
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
            os.link(self.path, fresh)
            fresh.replace(self._previous)

    def _move_aside(self, path: Path, reason: str) -> str:
        taken = {
            int(old.suffix[1:]): old for old in path.parent.glob(f"{path.name}{_ASIDE}*") if old.suffix[1:].isdigit()
        }
        target = path.with_name(f"{path.name}{_ASIDE}{max(taken, default=0) + 1}")
        try:
            path.rename(target)
            for number in sorted(taken)[: max(0, len(taken) + 1 - ASIDE_KEPT)]:
                taken[number].unlink()
        except OSError as error:
            return f"{path}: {reason}; it cannot be moved aside: {describe_os_error(error)}"
        return f"{path}: {reason}; moved to {target.name}"
