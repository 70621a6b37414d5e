"""The names under which the agent may be asked; pure.

The check stops a foreign page whose domain's owner lets the name point to the node's address: the browser of a person
on the node would read a port reachable from the node only, as the page's own site. Such a request carries the page's
name in `Host`. An address in `Host` cannot be such a name, nor can a name outside public DNS.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

_LOCAL = frozenset({"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"})
_PRIVATE_ENDINGS = (".localhost", ".svc", ".svc.cluster.local")
"""From RFC 6761 and Kubernetes; names with such endings cannot be registered."""


class AllowedHosts:
    """The allowed names of an agent."""

    def __init__(self, own: Iterable[str], configured: tuple[str, ...]) -> None:
        """`own` are the node's names; `configured` may say `*.example.com`, or `*` for any name."""
        self.configured = configured
        self.is_strict = bool(configured)
        """Whether connections from other machines are held to the names too, as names are configured."""
        configured = tuple(name.lower() for name in configured)
        self._names = _LOCAL | {part for name in own for part in (name.lower(), name.lower().partition(".")[0]) if part}
        self._names |= {name for name in configured if "*" not in name}
        self._endings = (*_PRIVATE_ENDINGS, *(name[1:] for name in configured if name.startswith("*.")))
        self._any = "*" in configured
        self._judge = lru_cache(maxsize=64)(self._judge_name)

    def refuse(self, host: str | None, *, is_local: bool, needs_host: bool) -> str:
        """Why a request with this `Host` is refused; empty for an allowed request.

        `is_local` is for a request over loopback; `needs_host` is for a version of HTTP with a mandatory `Host` header.
        """
        if host is None:
            return "HTTP/1.1 asks for a Host header" if needs_host else ""
        if self._any or not (is_local or self.is_strict) or self._judge(host):
            return ""
        return f"{host[:80]!r} is no name of this agent; use its address, or add the name to http.allowed_hosts"

    def _judge_name(self, host: str) -> bool:
        name = _strip_port(host).rstrip(".").lower()
        return name in self._names or name.endswith(self._endings) or _is_address(name)


@lru_cache(maxsize=64)
def is_loopback(address: str) -> bool:
    """Whether only the node itself reaches the address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _strip_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and ":" not in name else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
