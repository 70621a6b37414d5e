"""The connections of a listener, and which connection makes room for the next; pure.

Owns the bound on connections, in all and by address. At the bound, the connection waiting longest for a request is
closed in favour of the new connection; a connection with a request in progress stays for a second at least. So no set
of standing connections keeps a new connection out for longer.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SLOW_SECONDS: Final = 1.0
"""A connection with a request in progress for longer makes room, where no connection waits for a request."""


class ConnectionTable(Generic[K]):
    """The connections of a listener; the caller gives the time."""

    def __init__(self, total: int, each: int) -> None:
        """At most `total` connections, and `each` of one address."""
        self._total, self._each = total, each
        self._address_of: dict[K, str] = {}
        self._count_of: Counter[str] = Counter()
        self._waiting: dict[K, None] = {}
        self._answering: dict[K, float] = {}

    def __len__(self) -> int:
        return len(self._address_of)

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._address_of))

    def is_full(self, address: str) -> bool:
        """Whether a connection has to go before a further connection of the address may come."""
        return len(self) >= self._total or self._count_of[address] >= self._each

    def choose(self, now: float, address: str = "") -> K | None:
        """The connection that makes room, of the same address for a full address; `None` while all are busy."""
        is_own = bool(address) and self._count_of[address] >= self._each
        for key in self._waiting:
            if not is_own or self._address_of[key] == address:
                return key
        for key, since in self._answering.items():
            if now - since > SLOW_SECONDS and (not is_own or self._address_of[key] == address):
                return key
        return None

    def add(self, key: K, address: str) -> None:
        """Enter a new connection, waiting for a request."""
        self._address_of[key] = address
        self._count_of[address] += 1
        self._waiting[key] = None

    def wait(self, key: K) -> None:
        """Mark the connection as waiting: the answer is sent, or a request has begun to arrive."""
        if key in self._address_of:
            self._answering.pop(key, None)
            self._waiting.pop(key, None)
            self._waiting[key] = None

    def answer(self, key: K, now: float) -> None:
        """Mark the connection as busy with a request."""
        if key in self._address_of:
            self._waiting.pop(key, None)
            self._answering[key] = now

    def remove(self, key: K) -> None:
        """Remove a closed connection; a second removal has no effect."""
        address = self._address_of.pop(key, None)
        if address is None:
            return
        self._waiting.pop(key, None)
        self._answering.pop(key, None)
        self._count_of[address] -= 1
        if not self._count_of[address]:
            del self._count_of[address]
