"""Access control: TLS, client certificates and passwords, by the web configuration file.

Owns the answer 401. A password is checked in a thread and remembered by a digest, because a bcrypt check costs more
than a whole scrape; the number of waiting checks is bounded, so that guessing delays no remembered user.
"""

import base64
import binascii
import hashlib
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import bcrypt

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.http.messages import Response
from nodeagent.edge.http.routes import render_problem
from nodeagent.edge.http.tls import RotatingTls
from nodeagent.edge.http.web_config import WebConfig, read_web_config

CHECK_SECONDS: Final = 10.0
CHECKS_WAITING_MAX: Final = 8
REMEMBERED_MAX: Final = 64
PASSWORD_BYTES_MAX: Final = 72
"""Bcrypt's limit."""
_NOBODY: Final = "$2b$10$abcdefghijklmnopqrstuuOe5mkBEbMS6r.dbfyUOPGE4c1RMB/5G"
"""Checked for unknown users, so that the time of an answer gives no user away."""


def check_password(password: bytes, hashed: bytes) -> bool:
    """Whether the password fits the bcrypt hash; compared in constant time, outside the interpreter's lock."""
    return len(password) <= PASSWORD_BYTES_MAX and bcrypt.checkpw(password, hashed)


class Access:
    """The rules of a web configuration file; belongs to the event loop's thread from the first check on."""

    def __init__(
        self,
        config: WebConfig,
        tls: RotatingTls | None,
        is_right: Callable[[bytes, bytes], bool] = check_password,
    ) -> None:
        """`is_right` compares a password with a hash, and may be slow."""
        self._config, self._tls, self._is_right = config, tls, is_right
        self._worker: WorkerThread | None = None
        self._remembered: dict[bytes, str] = {}
        self._secret = secrets.token_bytes(32)
        self._waiting = 0
        self._client_ends = ""
        self.cert_file = config.tls.cert_file if config.tls is not None else None
        """The file of the server's certificate."""

    @property
    def client_expires_at(self) -> float | None:
        """The end of the last client's certificate; `None` while no client has sent a certificate."""
        return float(ssl.cert_time_to_seconds(self._client_ends)) if self._client_ends else None

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context for connections; `None` without TLS."""
        return self._tls.context if self._tls is not None else None

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields of every answer."""
        return self._config.headers

    async def check(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> Response | None:
        """`None` for an allowed request, else the refusal."""
        if certificate is not None:
            self._client_ends = str(certificate.get("notAfter", ""))
        allowed = self._config.tls.client_allowed_sans if self._config.tls is not None else ()
        if allowed and not _list_names(certificate) & frozenset(allowed):
            return render_problem(403, "your certificate is not allowed", "none of its names is in client_allowed_sans")
        if not self._config.users:
            return None
        credentials = parse_basic(headers.get("authorization", ""))
        if credentials is None:
            return _ask_for_password()
        return await self._check_password(*credentials)

    async def _check_password(self, user: str, password: bytes) -> Response | None:
        digest = hashlib.blake2b(user.encode() + b"\x00" + password, key=self._secret).digest()
        if digest in self._remembered:
            return None
        if self._waiting >= CHECKS_WAITING_MAX:
            return render_problem(
                503, "too many passwords are being checked", "try again", headers={"Retry-After": "1"}
            )
        hashed = self._config.users.get(user, _NOBODY).encode()
        self._worker = self._worker or WorkerThread("password check")
        self._waiting += 1
        try:
            right = await self._worker.run(
                lambda: self._is_right(password, hashed), timeout_seconds=CHECK_SECONDS, what="checking a password"
            )
        except WorkerError:
            return render_problem(503, "passwords cannot be checked now", headers={"Retry-After": "1"})
        finally:
            self._waiting -= 1
        if not right or user not in self._config.users:
            return _ask_for_password()
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.pop(next(iter(self._remembered)))
        self._remembered[digest] = user
        return None

    def close(self) -> None:
        """Let the checking thread end."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def open_access(path: Path, *, on_error: Callable[[str], None]) -> Access:
    """The rules of the file, with all named files loaded.

    Raises:
        WebConfigInvalid: the rules cannot be followed as written.
    """
    config = read_web_config(path)
    tls = RotatingTls(config.tls, path, on_error=on_error) if config.tls is not None else None
    return Access(config, tls)


def parse_basic(header: str) -> tuple[str, bytes] | None:
    """User and password of an Authorization header; `None` for any other header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _ask_for_password() -> Response:
    return render_problem(
        401, "who are you", "send user and password", headers={"WWW-Authenticate": 'Basic realm="nodeagent"'}
    )


def _list_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    names = certificate.get("subjectAltName", ()) if certificate is not None else ()
    return frozenset(str(name) for _kind, name in names)
