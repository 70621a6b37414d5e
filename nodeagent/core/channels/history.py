"""Recent envelopes of the bus, kept for following a chain of causes afterwards.

Owns the ring of recent envelopes. One busy topic may fill only an eighth of the ring: a sample each second must not
push out the driver's one change of the hour. Of a repeated fact the first and the newest are kept, the rest counted;
the causes of a present condition stay as long as the condition.
Refuses to be a store; durable data are written to disk by the owner.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.core.channels.envelope import Envelope

_SHARE = 8
"""One topic fills at most one eighth of the ring."""
_KEPT = 4
"""Causes of present conditions fill at most a quarter of the ring."""


class _Repeated(Struct):
    """The places of a repeated fact in the ring."""

    first: int
    newest: int


class History:
    """At most `limit` envelopes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // _SHARE)
        self._ring: dict[int, Envelope[Any]] = {}
        self._of_topic: dict[type, dict[int, None]] = {}
        self._facts: dict[Any, _Repeated] = {}
        self._kept: frozenset[int] = frozenset()

    def add(self, envelope: Envelope[Any]) -> None:
        """Add an envelope and forget an envelope beyond the limits."""
        topic = type(envelope.value)
        seqs = self._of_topic.get(topic)
        if seqs is None:
            seqs = self._of_topic[topic] = {}
        seqs[envelope.seq] = None
        self._ring[envelope.seq] = envelope
        if len(seqs) > self._share:
            self._forget(self._find_oldest(seqs))
        elif len(self._ring) > self._limit:
            self._forget(self._find_oldest(self._ring))

    def add_fact(self, envelope: Envelope[Any]) -> None:
        """Add a fact; an equal fact between the first time and now is counted and no longer kept."""
        try:
            repeated = self._facts.get(envelope.value)
        except TypeError:  # a mutable value has no hash and cannot be looked up: kept each time
            return self.add(envelope)
        if repeated is None:
            self._facts[envelope.value] = _Repeated(envelope.seq, envelope.seq)
            return self.add(envelope)
        between = self._ring[repeated.newest]
        if repeated.newest != repeated.first and repeated.newest not in self._kept:
            self._remove(between)
            envelope = replace(envelope, repeats=between.repeats + 1)
        repeated.newest = envelope.seq
        return self.add(envelope)

    def keep(self, causes: Iterable[int]) -> None:
        """Keep the causes of present conditions, and the causes of the causes, until the next call."""
        kept: set[int] = set()
        waiting = sorted(causes, reverse=True)
        while waiting and len(kept) < self._limit // _KEPT:
            envelope = self._ring.get(waiting.pop())
            if envelope is not None and envelope.seq not in kept:
                kept.add(envelope.seq)
                waiting += [] if envelope.cause is None else [envelope.cause]
        self._kept = frozenset(kept)

    def envelopes(self) -> tuple[Envelope[Any], ...]:
        """Oldest first."""
        return tuple(self._ring.values())

    def _find_oldest(self, seqs: dict[int, None] | dict[int, Envelope[Any]]) -> int:
        """The oldest envelope not kept as a cause; the oldest of all if only the newest is not kept."""
        oldest: int = next(iter(seqs))
        if not self._kept:
            return oldest
        found = next((seq for seq in seqs if seq not in self._kept), oldest)
        return oldest if found == next(reversed(seqs)) else found

    def _forget(self, seq: int) -> None:
        envelope = self._ring[seq]
        self._remove(envelope)
        try:
            repeated = self._facts.get(envelope.value)
        except TypeError:
            return
        if repeated is None:
            return
        if seq == repeated.newest:
            del self._facts[envelope.value]
        elif seq == repeated.first:
            repeated.first = repeated.newest

    def _remove(self, envelope: Envelope[Any]) -> None:
        del self._ring[envelope.seq]
        del self._of_topic[type(envelope.value)][envelope.seq]
