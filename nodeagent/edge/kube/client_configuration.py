"""How an API server is reached and who asks it, as values: addresses, certificates and a token, no library's objects.

Owns what is made of them for a connection: the TLS context, and the proxy that the environment may name.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct


class Way(Struct, frozen=True):
    """All of a client configuration that a connection is made with; certificates and keys are PEM."""

    server: str
    authority: bytes | None = None
    """Who vouches for the server; those of the system where nothing is said."""
    certificate: bytes | None = None
    key: bytes | None = None
    is_verified: bool = True
    server_name: str | None = None
    """The name in the server's certificate, where that is another than in the address."""
    proxy: str | None = None


class ClientConfiguration(Struct, frozen=True):
    """A server, and who asks it."""

    way: Way
    authorization: str = ""
    """The header of a request; empty where a certificate says who asks, or nothing does."""


class Access(NamedTuple):
    """The way to a server: whom it is trusted by, and through whom it leads."""

    server: str
    tls: ssl.SSLContext | bool
    """By what its certificate is judged; no context where there is none to judge."""
    server_hostname: str | None
    """The name in its certificate, where that is another than in the address."""
    proxy: str | None


def open_access(way: Way) -> Access:
    """The way to a server as the HTTP client takes it; blocks.

    Raises:
        OSError: certificate, key or trust anchor cannot be used.
        ValueError: its address is none.
    """
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - an agent's start would load it, see `late`

    server = urlsplit(way.server)
    proxy = way.proxy or (None if proxy_bypass(server.hostname or "") else getproxies().get(server.scheme))
    tls = server.scheme != "https" or _trust(way)
    return Access(way.server, tls, way.server_name, proxy)


def _trust(way: Way) -> ssl.SSLContext:
    with ExitStack() as files:
        authority = files.enter_context(_lay_down(way.authority)) if way.authority is not None else None
        context = ssl.create_default_context(cafile=authority)
        if way.certificate is not None:
            certificate = files.enter_context(_lay_down(way.certificate))
            key = files.enter_context(_lay_down(way.key)) if way.key is not None else None
            context.load_cert_chain(certificate, keyfile=key)
    if not way.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _lay_down(content: bytes) -> Iterator[str]:
    """A path by which the TLS library, which reads keys from files alone, finds it; no disk ever has it."""
    descriptor = os.memfd_create("nodeagent-pem")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
