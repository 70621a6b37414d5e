"""Finds the newest unseen envelope among a component's inputs: the cause of the component's next action.

Owns the number of the newest envelope acted upon. Refuses to guess: without news there is no cause.
"""

from typing import Any

from nodeagent.core.channels.envelope import Envelope


class News:
    """The newest seen envelope of one component, or of one of its objects."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = 0

    def take(self, *envelopes: Envelope[Any] | None) -> Envelope[Any] | None:
        """The newest envelope, if newer than at the last call; else `None`."""
        newest = max((each for each in envelopes if each is not None), key=lambda each: each.seq, default=None)
        if newest is None or newest.seq <= self._seen:
            return None
        self._seen = newest.seq
        return newest
