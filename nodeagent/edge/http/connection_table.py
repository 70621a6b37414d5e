"""The connections of one listener, and which of them makes room for the next; pure.

Owns the bound on connections, in all and of one address. Where it is reached, the connection that has waited longest
for its next request is closed in favour of the new one; one whose request is being answered stays for a second at
least. So no set of connections that stand keeps a new one out for longer.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

SLOW_SECONDS: Final = 1.0
"""A connection whose request is in progress for longer than this makes room, where none waits for its request."""


class ConnectionTable(Generic[K]):
    """The connections of one listener; time is the caller's."""

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
        """Whether a connection has to go before another of this address may come."""
        return len(self) >= self._total or self._count_of[address] >= self._each

    def choose(self, now: float, address: str = "") -> K | None:
        """The connection that makes room, one of this address where that has all it may have; `None` where all work."""
        is_own = bool(address) and self._count_of[address] >= self._each
        for key in self._waiting:
            if not is_own or self._address_of[key] == address:
                return key
        for key, since in self._answering.items():
            if now - since > SLOW_SECONDS and (not is_own or self._address_of[key] == address):
                return key
        return None

    def add(self, key: K, address: str) -> None:
        """A connection has come, and waits for its request from now on."""
        self._address_of[key] = address
        self._count_of[address] += 1
        self._waiting[key] = None

    def wait(self, key: K) -> None:
        """The connection waits for its request from now on: its answer is sent, or a request has begun to arrive."""
        if key in self._address_of:
            self._answering.pop(key, None)
            self._waiting.pop(key, None)
            self._waiting[key] = None

    def answer(self, key: K, now: float) -> None:
        """The connection's request is being answered."""
        if key in self._address_of:
            self._waiting.pop(key, None)
            self._answering[key] = now

    def remove(self, key: K) -> None:
        """The connection is closed; removing it twice is removing it once."""
        address = self._address_of.pop(key, None)
        if address is None:
            return
        self._waiting.pop(key, None)
        self._answering.pop(key, None)
        self._count_of[address] -= 1
        if not self._count_of[address]:
            del self._count_of[address]
