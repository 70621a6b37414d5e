"""Who is connected, and who makes room for whom; pure.

Owns the one rule by which a server that is full stays open: the address that has most connections gives up the one of
its own that has waited longest, in favour of the newcomer. A connection that holds an answer up for long waits too;
one whose request is here, read or not, does not. So no set of connections that stand, whatever they do or do not say,
keeps the next one out.
"""

import ipaddress
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

SLOW_SECONDS: Final = 1.0
"""A request or answer in progress for longer than this makes room like one that waits."""
_V6_SHARED_BITS: Final = 64
"""What one machine may be given of IPv6 addresses is a /64: they count as one."""


class Verdict(NamedTuple, Generic[K]):
    """What becomes of a newcomer, and who leaves for it."""

    is_welcome: bool
    leaves: K | None = None


class _Party(Generic[K]):
    """The connections of one address: those that wait, the longest first, and those that are served, likewise."""

    __slots__ = ("served", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[K, None] = {}
        self.served: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self.waiting) + len(self.served)


class Crowd(Generic[K]):
    """The connections of one listener; time is the caller's."""

    def __init__(self, total: int, each: int, has_asked: Callable[[K], bool] = lambda _key: False) -> None:
        """At most `total` connections, and `each` of one address.

        `has_asked` is put to who is about to go: whether a whole request of it is here that nobody has read yet.
        """
        self.total, self.each = total, each
        self._has_asked = has_asked
        self._parties: dict[str, _Party[K]] = {}
        self._party_of: dict[K, tuple[str, _Party[K]]] = {}
        self._begun: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._party_of)

    def arrive(self, key: K, address: str, now: float) -> Verdict[K]:
        """Let a newcomer in, or not; who leaves is forgotten at once. It owes a request from now on."""
        party = self._parties.get(address)
        crowded = party if party is not None and len(party) >= self.each else None
        if crowded is None and len(self) >= self.total:
            crowded = max(self._parties.values(), key=len)
        leaves = None
        if crowded is not None:
            leaves = self._find_waiting(crowded, now)
            if leaves is None:
                return Verdict(is_welcome=False)
            self.leave(leaves)
        party = self._parties.setdefault(address, _Party())
        party.waiting[key] = None
        self._party_of[key] = address, party
        self._begun[key] = now
        return Verdict(is_welcome=True, leaves=leaves)

    def begin(self, key: K, now: float) -> None:
        """Its next request has begun to arrive, unless it is served or owes one already."""
        party = self._find_party(key)
        if party is not None and key in party.waiting and key not in self._begun:
            del party.waiting[key]
            party.waiting[key] = None
            self._begun[key] = now

    def serve(self, key: K, now: float) -> None:
        """Its request is being answered."""
        self.protect(key, now)
        self._begun.pop(key, None)

    def protect(self, key: K, now: float) -> None:
        """Its request seems to be here whole, though nobody has read it yet: it still owes it."""
        party = self._find_party(key)
        if party is not None:
            party.waiting.pop(key, None)
            party.served[key] = now

    def rest(self, key: K) -> None:
        """Its answer is gone; it may ask again, and owes nothing."""
        party = self._find_party(key)
        if party is not None:
            party.served.pop(key, None)
            party.waiting[key] = None

    def leave(self, key: K) -> None:
        """It is gone; leaving twice is leaving once."""
        address, party = self._party_of.pop(key, (None, None))
        if address is None or party is None:
            return
        party.waiting.pop(key, None)
        party.served.pop(key, None)
        self._begun.pop(key, None)
        if not party:
            del self._parties[address]

    def longest(self, now: float) -> K | None:
        """Who makes room first when descriptors run out all the same; it is forgotten at once."""
        party = max(self._parties.values(), key=len, default=None)
        found = self._find_waiting(party, now) if party is not None else None
        if found is not None:
            self.leave(found)
        return found

    def oldest_debt(self) -> tuple[K, float] | None:
        """Who has owed a request for longest, and since when."""
        return next(iter(self._begun.items()), None)

    def _find_waiting(self, party: _Party[K], now: float) -> K | None:
        while party.waiting:
            key = next(iter(party.waiting))
            if not self._has_asked(key):
                return key
            self.protect(key, now)
        key, since = next(iter(party.served.items()))
        return key if now - since > SLOW_SECONDS else None

    def _find_party(self, key: K) -> _Party[K] | None:
        """None for who had to leave and has not noticed yet."""
        _, party = self._party_of.get(key, (None, None))
        return party


@lru_cache(maxsize=256)
def find_party(address: str) -> str:
    """Under which name an address is counted: itself, or the /64 it is from."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        if not parsed.is_loopback:
            return str(ipaddress.ip_network((parsed, _V6_SHARED_BITS), strict=False).network_address)
    return str(parsed)
