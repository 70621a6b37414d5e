"""Reads the web configuration file in the form of Prometheus' exporter toolkit.

Owns the syntax. Strict: a misspelt or unsupported key is refused with the reason, since a server less protected than
the owner believes is worse than no server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nodeagent.edge.http.errors import WebConfigInvalid
from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml

FILE_BYTES_MAX: Final = 256 * 1024
CLIENT_AUTH: Final = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_UNVERIFIED: Final = ("RequestClientCert", "RequireAnyClientCert")
VERSIONS: Final = ("TLS12", "TLS13")
_OLD_VERSIONS: Final = ("TLS10", "TLS11")
_HEADERS: Final = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_HASH: Final = re.compile(r"\$2[aby]\$(0[4-9]|1[0-9])\$[./A-Za-z0-9]{53}")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS of connections, and the certificates demanded of clients."""

    cert_file: Path
    key_file: Path
    client_auth: str = "NoClientCert"
    client_ca_file: Path | None = None
    client_allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole file."""

    tls: TlsConfig | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def read_web_config(path: Path) -> WebConfig:
    """The file's content.

    Raises:
        WebConfigInvalid: with every problem.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise WebConfigInvalid(path, [(error.strerror or str(error)).lower()]) from error
    if len(content) > FILE_BYTES_MAX:
        raise WebConfigInvalid(path, [f"larger than {FILE_BYTES_MAX} bytes"])
    try:
        tree = parse_yaml(content)
    except YamlUnreadable as error:
        raise WebConfigInvalid(path, [str(error)]) from error
    return parse_web_config(tree, path)


def parse_web_config(tree: object, path: Path) -> WebConfig:
    """The file's content from the YAML tree.

    Raises:
        WebConfigInvalid: with every problem.
    """
    reader = _Reader(path)
    config = reader.read_file(tree)
    if reader.problems:
        raise WebConfigInvalid(path, reader.problems)
    return config


class _Reader:
    """Reads the file and collects problems."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[str] = []

    def read_file(self, tree: object) -> WebConfig:
        top = self._section("", tree, ("tls_server_config", "http_server_config", "basic_auth_users"))
        tls = self._read_tls(top["tls_server_config"]) if top.get("tls_server_config") is not None else None
        http = self._section("http_server_config", top.get("http_server_config"), ("http2", "headers"))
        return WebConfig(tls, self._read_users(top.get("basic_auth_users")), self._read_headers(http.get("headers")))

    def _read_tls(self, tree: object) -> TlsConfig:
        name = "tls_server_config"
        keys = (
            "cert_file",
            "key_file",
            "client_auth_type",
            "client_ca_file",
            "client_allowed_sans",
            "min_version",
            "max_version",
            "cipher_suites",
            "curve_preferences",
            "prefer_server_cipher_suites",
        )
        section = self._section(name, tree, keys)
        if section.get("curve_preferences"):
            self.problems.append(f"{name}.curve_preferences cannot be chosen here; remove it")
        cert, key = self._file(section, name, "cert_file"), self._file(section, name, "key_file")
        for file, missing in ((cert, "cert_file"), (key, "key_file")):
            if file is None:
                self.problems.append(f"{name}.{missing} is missing")
        auth = self._text(section, name, "client_auth_type") or "NoClientCert"
        ca = self._file(section, name, "client_ca_file")
        sans = self._texts(section, name, "client_allowed_sans")
        self._check_clients(auth, ca, sans)
        return TlsConfig(
            cert or Path(),
            key or Path(),
            auth,
            ca,
            sans,
            self._version(section, name, "min_version") or "TLS12",
            self._version(section, name, "max_version") or "TLS13",
            self._ciphers(self._texts(section, name, "cipher_suites")),
        )

    def _check_clients(self, auth: str, ca: Path | None, sans: tuple[str, ...]) -> None:
        name = "tls_server_config.client_auth_type"
        if auth in _UNVERIFIED:
            self.problems.append(
                f"{name} {auth} takes certificates nobody vouches for; use one of {', '.join(CLIENT_AUTH)}"
            )
        elif auth not in CLIENT_AUTH:
            self.problems.append(f"{name} {auth!r} is none of {', '.join(CLIENT_AUTH)}")
        elif auth != "NoClientCert" and ca is None:
            self.problems.append(f"{name} {auth} needs client_ca_file")
        elif auth == "NoClientCert" and (ca is not None or sans):
            self.problems.append(f"client_ca_file and client_allowed_sans need another {name} than NoClientCert")

    def _version(self, section: Mapping[str, Any], name: str, key: str) -> str:
        version = self._text(section, name, key)
        if version in _OLD_VERSIONS:
            self.problems.append(f"{name}.{key} {version} is broken and not offered; use TLS12 or TLS13")
        elif version and version not in VERSIONS:
            self.problems.append(f"{name}.{key} {version!r} is none of {', '.join(VERSIONS)}")
        return version

    def _ciphers(self, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in CIPHERS]
        if unknown:
            self.problems.append(
                f"tls_server_config.cipher_suites: {', '.join(unknown)} not offered; known are {', '.join(CIPHERS)}"
            )
        return tuple(CIPHERS[name] for name in names if name in CIPHERS)

    def _read_users(self, tree: object) -> dict[str, str]:
        if tree is None:
            return {}
        if not isinstance(tree, Mapping):
            self.problems.append("basic_auth_users must be a mapping of user to bcrypt hash")
            return {}
        users = {}
        for user, hashed in tree.items():
            if not isinstance(user, str) or not user or ":" in user:
                self.problems.append(f"basic_auth_users: {user!r} is no user name")
            elif not isinstance(hashed, str) or not _HASH.fullmatch(hashed):
                self.problems.append(f"basic_auth_users.{user} is no bcrypt hash of cost 4 to 19")
            else:
                users[user] = hashed
        return users

    def _read_headers(self, tree: object) -> dict[str, str]:
        if tree is None:
            return {}
        headers = {}
        for name, value in self._section("http_server_config.headers", tree, _HEADERS).items():
            if isinstance(value, str) and value.isprintable():
                headers[name] = value
            else:
                self.problems.append(f"http_server_config.headers.{name} is no line of text")
        return headers

    def _section(self, name: str, tree: object, keys: tuple[str, ...]) -> Mapping[str, Any]:
        if tree is None:
            return {}
        if not isinstance(tree, Mapping):
            self.problems.append(f"{name or 'the file'} must be a mapping")
            return {}
        unknown = [str(key) for key in tree if key not in keys]
        if unknown:
            self.problems.append(
                f"unknown key {', '.join(unknown)} in {name or 'the file'}; known are {', '.join(keys)}"
            )
        return {key: value for key, value in tree.items() if key in keys}

    def _text(self, section: Mapping[str, Any], name: str, key: str) -> str:
        value = section.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self.problems.append(f"{name}.{key} must be text")
        return ""

    def _texts(self, section: Mapping[str, Any], name: str, key: str) -> tuple[str, ...]:
        value = section.get(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self.problems.append(f"{name}.{key} must be a list of texts")
        return ()

    def _file(self, section: Mapping[str, Any], name: str, key: str) -> Path | None:
        """A path relative to the configuration file, as in the toolkit."""
        text = self._text(section, name, key)
        return self._path.parent / text if text else None
