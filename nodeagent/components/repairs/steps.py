"""The steps of a session between two of its states, in words: for the log, the audit log and the page."""

from collections.abc import Iterator
from itertools import zip_longest

from nodeagent.model.repairs import Attempt, FaultSession


def describe_steps(session: FaultSession, before: FaultSession | None) -> Iterator[str]:
    """What is new in a session: its opening, ended attempts, further faults, a higher rung, its end."""
    if before is None:
        yield f"opened by {session.cause} at rung {session.rung}"
        return
    told = [_describe_attempt(attempt) for attempt in session.attempts]
    told_before = [_describe_attempt(attempt) for attempt in before.attempts]
    yield from (step for step, step_before in zip_longest(told, told_before) if step and step != step_before)
    new = dict.fromkeys(one.key for one in session.evidence[len(before.evidence) :])
    if new:
        yield f"joined by {', '.join(new)}"
    if session.rung is not before.rung:
        yield f"climbed from rung {before.rung} to {session.rung}"
    if session.ending is not None:
        yield f"closed, {session.ending}"


def _describe_attempt(attempt: Attempt) -> str:
    standing = "under way" if attempt.outcome is None else attempt.outcome
    return f"{attempt.rung} {standing}{f': {attempt.detail}' if attempt.detail else ''}"
