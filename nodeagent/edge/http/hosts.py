"""Under which names the agent may be asked; pure.

What this stops is a page from anywhere whose name its owner lets point at this machine: the browser of somebody who
works on it would then read a port that only this machine can reach, and take it for the page's own site. Such a request
carries that name in `Host`. An address there cannot be one, nor can a name that no public DNS gives out.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

_LOCAL = frozenset({"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"})
_PRIVATE_ENDINGS = (".localhost", ".svc", ".svc.cluster.local")
"""Of RFC 6761 and of Kubernetes; nobody can register a name that ends so."""


class AllowedHosts:
    """The names of one agent."""

    def __init__(self, own: Iterable[str], configured: tuple[str, ...]) -> None:
        """`own` are the names of this machine; `configured` may say `*.example.com`, or `*` for any."""
        self.configured = configured
        self.is_strict = bool(configured)
        """Whether connections from other machines are held to the names too: somebody has said which they are."""
        configured = tuple(name.lower() for name in configured)
        self._names = _LOCAL | {part for name in own for part in (name.lower(), name.lower().partition(".")[0]) if part}
        self._names |= {name for name in configured if "*" not in name}
        self._endings = (*_PRIVATE_ENDINGS, *(name[1:] for name in configured if name.startswith("*.")))
        self._any = "*" in configured
        self._judge = lru_cache(maxsize=64)(self._judge_name)

    def refuse(self, host: str | None, *, is_local: bool, needs_host: bool) -> str:
        """Why a request with this `Host` is not answered, empty where it is.

        `is_local` is whether it came over loopback; `needs_host` is whether its version of HTTP has that header.
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
    """Whether this is an address that only this machine reaches."""
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
