"""How to reach an API server with which identity, as values: addresses, certificates and a token, no library's objects.

Owns the connection's inputs made of the values: the TLS context, and a proxy named by the environment.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct


class Way(Struct, frozen=True):
    """The part of a client configuration needed for a connection; certificates and keys are PEM."""

    server: str
    authority: bytes | None = None
    """The server's trust anchor; the system's anchors where none is given."""
    certificate: bytes | None = None
    key: bytes | None = None
    is_verified: bool = True
    server_name: str | None = None
    """The name in the server's certificate, where different from the address."""
    proxy: str | None = None


class ClientConfiguration(Struct, frozen=True):
    """A server, and the client's identity."""

    way: Way
    authorization: str = ""
    """The header of a request; empty for an identity by certificate, or without an identity."""


class Access(NamedTuple):
    """The way to a server: trust, and proxy."""

    server: str
    tls: ssl.SSLContext | bool
    """The context for the server's certificate; no context without TLS."""
    server_hostname: str | None
    """The name in the server's certificate, where different from the address."""
    proxy: str | None


def open_access(way: Way) -> Access:
    """The way to a server in the HTTP client's form; blocks.

    Raises:
        OSError: certificate, key or trust anchor cannot be used.
        ValueError: the address is malformed.
    """
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
    """A path in memory for the TLS library, which reads keys from files alone; no disk ever has the content."""
    descriptor = os.memfd_create("nodeagent-pem")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
