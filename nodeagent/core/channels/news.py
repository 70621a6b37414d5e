"""Which of the envelopes a part looks at is news to it: the cause of what it does next.

Owns the memory of what was acted upon. Refuses to guess: without news nothing is the cause.
"""

from typing import Any

from nodeagent.core.channels.envelope import Envelope


class News:
    """One per part, or per thing that it keeps."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = 0

    def take(self, *envelopes: Envelope[Any] | None) -> Envelope[Any] | None:
        """The newest of these that was not there at the last call; `None` when nothing is new."""
        newest = max((each for each in envelopes if each is not None), key=lambda each: each.seq, default=None)
        if newest is None or newest.seq <= self._seen:
            return None
        self._seen = newest.seq
        return newest
