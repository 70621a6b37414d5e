"""How long the kubelet waited for its answers, by question, resource and outcome.

Owns the counts for the life of the process: a plugin that is served anew goes on counting.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from nodeagent.core.durations import Durations

Outcome = Literal["ok", "refused", "failed"]


class Call(NamedTuple):
    """One kind of answer."""

    method: str
    resource: str
    outcome: Outcome


class CallTimes:
    """Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._times: dict[Call, Durations] = {}

    @property
    def times(self) -> Mapping[Call, Durations]:
        """What was counted so far."""
        return self._times

    def observe(self, call: Call, seconds: float) -> None:
        """One more answer."""
        known = self._times.get(call)
        if known is None:
            known = self._times[call] = Durations()
        known.observe(seconds)
