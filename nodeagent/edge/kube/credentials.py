"""Who the agent is to the API server: a pod's service account or a kubeconfig, found, read and kept fresh.

Owns the search and the re-reading: tokens in files are replaced under us, programs that give tokens give ones that end.
Refuses to guess: a kubeconfig that is named is used or reported, never passed over for another source.
Everything here blocks and belongs in a worker thread.
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.host.files.pseudo_file import read_attribute
from nodeagent.edge.kube.errors import CredentialsInvalid
from nodeagent.edge.kube.library import Library
from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml

_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LIMIT_BYTES = 1 << 20
_DEFAULT_NAMESPACE = "default"
_MALFORMED = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError, OSError)
"""What kubernetes_asyncio raises over files that are not what they should be, besides its own error."""


class Access(NamedTuple):
    """The way to a server: whom it is trusted by, and through whom it leads."""

    server: str
    tls: ssl.SSLContext | bool
    """By what its certificate is judged; no context where there is none to judge."""
    server_hostname: str | None
    """The name in its certificate, where that is another than in the address."""
    proxy: str | None


class Credentials(Protocol):
    """One source of credentials."""

    @property
    def where(self) -> str:
        """Which file or directory, for people."""
        ...

    def read_namespace(self) -> str:
        """Where objects of ours go unless the settings say otherwise."""
        ...

    def load(self, library: Library, scratch: ExitStack) -> Any:
        """A client configuration with a server, a trust anchor and an identity.

        Files that it names and that are ours live until `scratch` is closed.

        Raises:
            CredentialsInvalid: they cannot be used.
        """
        ...


class ServiceAccount(Struct, frozen=True):
    """The account that a pod runs as."""

    environ: Mapping[str, str]
    directory: Path

    @property
    def where(self) -> str:
        """The directory that the kubelet mounts."""
        return str(self.directory)

    def read_namespace(self) -> str:
        """The account's own."""
        return read_attribute(self.directory / "namespace") or _DEFAULT_NAMESPACE

    def load(self, library: Library, scratch: ExitStack) -> Any:  # noqa: ARG002 - all its files are the kubelet's
        """Read token and trust anchor as they are now."""
        configuration = library.Configuration()
        loader = library.InClusterConfigLoader(
            token_filename=str(self.directory / "token"),
            cert_filename=str(self.directory / "ca.crt"),
            try_refresh_token=False,
            environ=dict(self.environ),
        )
        try:
            loader.load_and_set(configuration)
        except (library.ConfigException, *_MALFORMED) as error:
            raise CredentialsInvalid(self.where, _describe(error)) from error
        return configuration


class Kubeconfig(Struct, frozen=True):
    """A file as kubectl uses it."""

    path: Path

    @property
    def where(self) -> str:
        """The file."""
        return str(self.path)

    def read_namespace(self) -> str:
        """A person's kubeconfig has no place for the agent's objects."""
        return _DEFAULT_NAMESPACE

    def load(self, library: Library, scratch: ExitStack) -> Any:
        """Read it, and whatever it names: certificates, token files, programs that give tokens."""
        from tempfile import TemporaryDirectory  # noqa: PLC0415 - likewise

        configuration = library.Configuration()
        try:
            document = parse_yaml(read_bounded(self.path, limit_bytes=_LIMIT_BYTES))
            _unpack_data(document, Path(scratch.enter_context(TemporaryDirectory(prefix="nodeagent-"))))
            loader = library.KubeConfigLoader(document, config_base_path=str(self.path.parent))
            asyncio.run(loader.load_and_set(configuration))
        except (library.ConfigException, YamlUnreadable, HostError, *_MALFORMED) as error:
            raise CredentialsInvalid(self.where, _describe(error)) from error
        if "server" not in _find_cluster(document):
            raise CredentialsInvalid(self.where, "the current context's cluster names no server")
        return configuration


def find_credentials(kubeconfig: Path | None, environ: Mapping[str, str]) -> Credentials | None:
    """The kubeconfig that is named, or else the service account where there is one."""
    if kubeconfig is not None:
        return Kubeconfig(kubeconfig)
    account = ServiceAccount(environ, SERVICE_ACCOUNT_DIR)
    return account if environ.get(_HOST) and environ.get(_PORT) and _has_token(account) else None


def open_access(configuration: Any) -> Access:
    """The way to the server of a client configuration.

    Raises:
        OSError: certificate, key or trust anchor cannot be used.
        ValueError: its address is none.
    """
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - the client has loaded it by then

    server = urlsplit(configuration.host)
    proxy = configuration.proxy or (None if proxy_bypass(server.hostname or "") else getproxies().get(server.scheme))
    tls = server.scheme != "https" or _trust(configuration)
    return Access(configuration.host, tls, configuration.tls_server_name, proxy)


def _trust(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def name_identity(configuration: Any) -> str:
    """What a client configuration says to a server of who asks; empty where a certificate does."""
    return str(configuration.api_key.get("BearerToken", ""))


def _has_token(account: ServiceAccount) -> bool:
    return (account.directory / "token").exists()


def _unpack_data(document: Any, directory: Path) -> None:
    """Put certificates and keys that stand in the file itself where the TLS library can read them.

    kubernetes_asyncio does so too, but keeps a descriptor open for each and the keys on disk until the process ends.
    """
    for kind, entries in (("cluster", document["clusters"]), ("user", document.get("users") or ())):
        for number, entry in enumerate(entries):
            values = entry.get(kind) or {}
            for name in ("certificate-authority", "client-certificate", "client-key"):
                if values.get(f"{name}-data"):
                    path = directory / f"{kind}-{number}-{name}"
                    path.write_bytes(base64.b64decode(values.pop(f"{name}-data")))
                    values[name] = str(path)


def _find_cluster(document: Any) -> Mapping[str, Any]:
    """The cluster of the current context, in a document that was read without an error."""
    context = next(each["context"] for each in document["contexts"] if each["name"] == document["current-context"])
    found: Mapping[str, Any] = next(
        each["cluster"] for each in document["clusters"] if each["name"] == context["cluster"]
    )
    return found


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text and len(text) > 3 else f"it is not a valid file ({type(error).__name__} {text})".rstrip()
