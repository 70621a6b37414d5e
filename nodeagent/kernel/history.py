"""What was published lately, kept so that a chain of causes can be followed afterwards.

Owns the ring of recent envelopes. One busy topic may hold only a share of it: a sample each second must not push out
the driver's one change of the hour. Refuses to be a store; what must survive is written to disk by its owner.
"""

from collections import deque
from typing import Any

from nodeagent.kernel.envelope import Envelope

_SHARE = 8
"""One topic holds at most this fraction (one over it) of the ring."""


class History:
    """At most `limit` envelopes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = max(1, limit // _SHARE)
        self._ring: dict[int, Envelope[Any]] = {}
        self._of_topic: dict[type, deque[int]] = {}

    def add(self, envelope: Envelope[Any]) -> None:
        """Remember one more and forget what is past the limits."""
        topic = type(envelope.value)
        seqs = self._of_topic.get(topic)
        if seqs is None:
            seqs = self._of_topic[topic] = deque()
        seqs.append(envelope.seq)
        self._ring[envelope.seq] = envelope
        if len(seqs) > self._share:
            del self._ring[seqs.popleft()]
        elif len(self._ring) > self._limit:
            oldest = self._ring.pop(next(iter(self._ring)))
            self._of_topic[type(oldest.value)].popleft()

    def envelopes(self) -> tuple[Envelope[Any], ...]:
        """Oldest first."""
        return tuple(self._ring.values())
