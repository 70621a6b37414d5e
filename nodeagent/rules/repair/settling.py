"""Settling: the findings after a start count once several polls in a row say the same, or after a bounded time.

At a boot links train and services come up one by one; what a node says in its first minutes is no evidence.
"""

from typing import Final

from nodeagent.model.values import Value
from nodeagent.rules.repair.findings import Findings

EQUAL_POLLS: Final = 3
CEILING_SECONDS: Final = 600.0


class Settling(Value, frozen=True):
    """The polls so far."""

    since_seconds: float
    """By the clock that only rises."""
    polls_first: int
    """How many complete polls come first: the verdicts themselves wait for so many before a fault is over."""
    polls: int = 0
    equal: int = 0
    last: Findings | None = None
    is_settled: bool = False
    is_timed_out: bool = False
    """Whether the findings count for the time alone, and never agreed."""

    def describe(self) -> str:
        """Why the findings do not count yet; empty once they do."""
        if self.is_settled:
            return ""
        blind = self.last.blind if self.last is not None else ""
        why = blind or f"{self.equal} of {EQUAL_POLLS} equal polls"
        return f"the findings settle after the start of the agent, for {CEILING_SECONDS:.0f} s at most: {why}"


def note_poll(settling: Settling, findings: Findings, now_seconds: float) -> Settling:
    """The standing after a further poll."""
    if settling.is_settled:
        return settling
    is_complete = not findings.blind
    is_equal = settling.last is not None and settling.last.summary == findings.summary
    polls = settling.polls + 1 if is_complete else 0
    counted = is_complete and polls > settling.polls_first
    equal = (settling.equal + 1 if settling.equal and is_equal else 1) if counted else 0
    is_late = now_seconds - settling.since_seconds >= CEILING_SECONDS
    return Settling(
        since_seconds=settling.since_seconds,
        polls_first=settling.polls_first,
        polls=polls,
        equal=equal,
        last=findings,
        is_settled=equal >= EQUAL_POLLS or is_late,
        is_timed_out=is_late and equal < EQUAL_POLLS,
    )
