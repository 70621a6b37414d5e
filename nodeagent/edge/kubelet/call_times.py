"""How long the kubelet waited for answers, by question, resource and outcome.

Owns the counts for the life of the process: a restarted plugin goes on counting.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from nodeagent.core.durations import Durations

Outcome = Literal["ok", "refused", "failed"]


class Call(NamedTuple):
    """A kind of answer."""

    method: str
    resource: str
    outcome: Outcome


class CallTimes:
    """Durations by kind of answer; belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._times: dict[Call, Durations] = {}

    @property
    def times(self) -> Mapping[Call, Durations]:
        """The durations so far."""
        return self._times

    def observe(self, call: Call, seconds: float) -> None:
        """Count an answer."""
        known = self._times.get(call)
        if known is None:
            known = self._times[call] = Durations()
        known.observe(seconds)
