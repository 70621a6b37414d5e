"""Claims of dynamic resource allocation: made ready before their pods start, put away after the last.

Owns that a claim is prepared once: what is prepared again is as it was told last.
"""

from collections.abc import MutableMapping

from nodeagent.model.journal import PreparedClaim
from nodeagent.model.values import Value


class Prepared(Value, frozen=True, tag="prepared"):
    """The devices of a claim are ready."""

    claim: PreparedClaim


class Unprepared(Value, frozen=True, tag="unprepared"):
    """The devices of a claim were put away."""

    uid: str
    at_seconds: float
    why: str


ClaimRecord = Prepared | Unprepared


def apply_claim(claims: MutableMapping[str, PreparedClaim], record: ClaimRecord) -> None:
    """One more record, in the claims by uid."""
    if isinstance(record, Prepared):
        claims[record.claim.uid] = record.claim
    else:
        claims.pop(record.uid, None)
