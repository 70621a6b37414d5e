"""Server-side TLS with certificates replaceable while running.

Owns the context. Each handshake checks whether the files have changed, and takes the new files; unusable files leave
the former certificates in force.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nodeagent.edge.http.errors import WebConfigInvalid
from nodeagent.edge.http.web_config import TlsConfig

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


class RotatingTls:
    """A context with renewal; start the server with `context`."""

    def __init__(self, config: TlsConfig, path: Path, *, on_error: Callable[[str], None]) -> None:
        """Load all files.

        Raises:
            WebConfigInvalid: a certificate, key or CA cannot be used.
        """
        self._config, self._path, self._on_error = config, path, on_error
        self._seen = self._identify()
        self._failed: tuple[object, ...] | None = None
        self.context = self._newest = self._load()
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Take changed files; called in each handshake, before a certificate is shown."""
        now = self._identify()
        if now not in (self._seen, self._failed):
            try:
                self._newest, self._seen = self._load(), now
            except WebConfigInvalid as error:
                self._failed = now
                self._on_error(str(error))
        if connection.context is not self._newest:
            connection.context = self._newest

    def _load(self) -> ssl.SSLContext:
        config = self._config
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = _VERSIONS[config.min_version]
            context.maximum_version = _VERSIONS[config.max_version]
            context.verify_mode = _CLIENT_AUTH[config.client_auth]
            if config.ciphers:
                context.set_ciphers(":".join(config.ciphers))
            context.load_cert_chain(config.cert_file, config.key_file, password=_refuse_password)
            if config.client_ca_file is not None:
                context.load_verify_locations(config.client_ca_file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            files = f"{config.cert_file}, {config.key_file} or {config.client_ca_file}"
            raise WebConfigInvalid(self._path, [f"cannot load {files}: {error}"]) from error
        return context

    def _identify(self) -> tuple[object, ...]:
        files = (self._config.cert_file, self._config.key_file, self._config.client_ca_file)
        return tuple(_identify(file) for file in files if file is not None)


def _refuse_password() -> str:
    # Without this function, OpenSSL would ask for the password on the terminal.
    raise ValueError("the key is protected by a password")


def _identify(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)
