"""What was published lately, kept so that a chain of causes can be followed afterwards.

Owns the ring of recent envelopes. One busy topic may hold only a share of it: a sample each second must not push out
the driver's one change of the hour. Of a fact that repeats itself the first and the newest are kept, the rest counted;
what led to something that is still wrong stays as long as it is wrong.
Refuses to be a store; what must survive is written to disk by its owner.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.core.channels.envelope import Envelope

_SHARE = 8
"""One topic holds at most this fraction (one over it) of the ring."""
_KEPT = 4
"""What is still wrong holds at most this fraction (one over it) of the ring."""


class _Repeated(Struct):
    """Where an often told fact is in the ring."""

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
        """Remember one more and forget what is past the limits."""
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
        """Remember a fact; one told before, between its first time and now, is counted and no longer kept."""
        try:
            repeated = self._facts.get(envelope.value)
        except TypeError:  # a value with something in it that can change cannot be looked up: it is kept each time
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
        """These led to what is still wrong: they stay, and what led to them, until others are named."""
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
        """Of those that nothing wrong goes back to; of all where there is no other but the newest."""
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
