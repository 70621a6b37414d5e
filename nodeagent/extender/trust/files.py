"""The files of the extender's trust, polled at run time: keys of choices, and certificates.

Owns the warnings before a certificate ends, and the rule that an unusable file leaves the earlier content in force.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.host.errors import FileTooLarge, FileUnreadable
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.http.access import Access
from nodeagent.edge.http.certificate import read_expiry
from nodeagent.extender.errors import KeysInvalid, SetupInvalid
from nodeagent.extender.trust.digest import ChoiceDigests, parse_keys

POLL_INTERVAL_SECONDS: Final = 10.0
SOON_SECONDS: Final = 30 * 86400.0
KEY_FILE_BYTES_MAX: Final = 64 * 1024
_REMEDIES: Final = {
    "server": "put a new one in its place, which is taken without a restart (docs/extender.md#certificates)",
    "client": "give it a new one (docs/extender.md#certificates)",
}
_log = get_logger(component="extender")


class KeyFile:
    """The file of keys; no keys without a path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen = b""
        self._problem = ""

    def open(self) -> ChoiceDigests:
        """The keys at the start.

        Raises:
            SetupInvalid: The configured keys cannot be read or used.
        """
        if self._path is None:
            _log.warning(
                "choices_not_proved", reason="extender.choice_keys_file is empty: a choice counts whoever wrote it"
            )
            return ChoiceDigests()
        try:
            return self._read(self._path)
        except (FileUnreadable, FileTooLarge, KeysInvalid) as error:
            raise SetupInvalid(
                f"cannot use extender.choice_keys_file {self._path}: {error}: write keys of 32 characters or more"
                " there, one a line, or leave the setting empty"
            ) from error

    def look(self) -> ChoiceDigests | None:
        """The keys after a change; `None` without a change, or for unusable keys."""
        if self._path is None:
            return None
        before = self._seen
        try:
            digests = self._read(self._path)
        except (FileUnreadable, FileTooLarge, KeysInvalid) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.error("choice_keys_not_replaced", reason=self._problem)
            return None
        self._problem = ""
        if self._seen == before:
            return None
        _log.info("choice_keys_replaced", count=len(digests.keys))
        return digests

    def _read(self, path: Path) -> ChoiceDigests:
        content = read_bounded(path, limit_bytes=KEY_FILE_BYTES_MAX)
        digests = ChoiceDigests(parse_keys(content))
        self._seen = content
        return digests


class Certificates:
    """The ends of the extender's certificate and of the last client's certificate."""

    def __init__(self, access: Access | None, read_wall: Callable[[], float]) -> None:
        self._access, self._read_wall = access, read_wall
        self._server_ends: float | None = None
        self._told: dict[str, tuple[float, str]] = {}

    def list_ends(self) -> Mapping[str, float]:
        """The known ends by owner, in seconds since 1970."""
        if self._access is None:
            return {}
        ends = {"server": self._server_ends, "client": self._access.client_expires_at}
        return {owner: when for owner, when in ends.items() if when is not None}

    def look(self) -> None:
        """Log once for each certificate before its end, and once after."""
        if self._access is None or self._access.cert_file is None:
            return
        file = self._access.cert_file
        try:
            self._server_ends = read_expiry(read_bounded(file).decode("ascii", errors="replace"))
        except (FileUnreadable, FileTooLarge, ValueError) as error:
            # The certificate in force stays, and each handshake after a change reports the file's error.
            _log.warning("certificate_not_read", file=str(file), reason=str(error))
        now = self._read_wall()
        for owner, when in self.list_ends().items():
            if when - now > SOON_SECONDS:
                continue
            event = "certificate_expired" if when <= now else "certificate_expires_soon"
            if self._told.get(owner) == (when, event):
                continue
            self._told[owner] = when, event
            what = f"the extender's certificate {file}" if owner == "server" else "the certificate of kube-scheduler"
            verb = "was good until" if when <= now else "is good until"
            day = f"{datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M} UTC"
            reason = f"{what} {verb} {day}, and without one no pod with parts of GPUs is placed: {_REMEDIES[owner]}"
            (_log.error if when <= now else _log.warning)(event, reason=reason)


async def watch_files(keys: KeyFile, certificates: Certificates, use_digests: Callable[[ChoiceDigests], None]) -> None:
    """Poll all files forever."""
    worker = WorkerThread("trust files")
    try:
        while True:
            try:
                await worker.run(certificates.look, timeout_seconds=POLL_INTERVAL_SECONDS, what="reading certificates")
                digests = await worker.run(
                    keys.look, timeout_seconds=POLL_INTERVAL_SECONDS, what="reading keys of choices"
                )
            except WorkerError as error:
                _log.warning("files_not_read", reason=str(error))
            else:
                if digests is not None:
                    use_digests(digests)
            await anyio.sleep(POLL_INTERVAL_SECONDS)
    finally:
        worker.close()
