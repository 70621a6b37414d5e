"""Prepared claims without holders; pure.

Owns the rule: a claim is unprepared without a call when neither the kubelet nor the API server knows a holder, in two
polls some time apart.
Refuses to conclude anything from a source that cannot be read: unreadable is not gone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.model.allocation import ClaimedDevice
from nodeagent.model.claims import ClaimReference, ResourceClaim
from nodeagent.model.journal import PreparedClaim

POLL_INTERVAL_SECONDS: Final = 60.0
"""Pause between polls; the kubelet unprepares claims of gone pods by itself in the same rhythm."""
CONFIRM_POLLS: Final = 10
"""For how many polls a claim that the API server has confirmed is not asked about again."""


def list_doubtful(
    claims: Iterable[PreparedClaim], claimed: Iterable[ClaimedDevice], driver: str
) -> tuple[PreparedClaim, ...]:
    """The prepared claims without a container in the kubelet's list; a pod may use a claim in none of its containers.

    The list has no uids: several claims of the same name, of which at most one is in use, are all doubtful.
    """
    prepared = tuple(claims)
    held = {(one.claim_namespace, one.claim) for one in claimed if one.driver == driver}
    named = Counter((claim.namespace, claim.name) for claim in prepared)
    return tuple(
        claim
        for claim in prepared
        if (claim.namespace, claim.name) not in held or named[claim.namespace, claim.name] > 1
    )


def refer_to(claim: PreparedClaim) -> ClaimReference:
    """The claim in the kubelet's terms."""
    return ClaimReference(namespace=claim.namespace, name=claim.name, uid=claim.uid)


def explain_end(claim: PreparedClaim, found: ResourceClaim | None) -> str:
    """Why a claim is over by the API server; empty for a living claim."""
    if found is None:
        return "the claim is gone"
    if found.uid != claim.uid:
        return "the claim was replaced by another one of its name"
    if not found.is_allocated:
        return "the claim is not allocated any more"
    return "" if found.pods else "the claim is reserved for no pod any more"


class Doubts:
    """Claims that seemed over in an earlier poll, and claims confirmed not long ago."""

    def __init__(self) -> None:
        self._looks = 0
        self._over: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}

    def begin(self, doubtful: Iterable[PreparedClaim]) -> tuple[PreparedClaim, ...]:
        """Begin a poll; returns the doubtful claims to ask about now."""
        self._looks += 1
        by_uid = {claim.uid: claim for claim in doubtful}
        self._over = {uid: look for uid, look in self._over.items() if uid in by_uid}
        self._confirmed = {
            uid: look for uid, look in self._confirmed.items() if uid in by_uid and self._looks - look < CONFIRM_POLLS
        }
        return tuple(claim for uid, claim in by_uid.items() if uid not in self._confirmed)

    def judge(self, ends: Mapping[str, str]) -> dict[str, str]:
        """By uid why a claim is to be unprepared now: the claims found over in an earlier poll too."""
        sure = {uid: why for uid, why in ends.items() if why and self._over.get(uid, self._looks) < self._looks}
        for uid, why in ends.items():
            if why:
                self._over.setdefault(uid, self._looks)
            else:
                self._over.pop(uid, None)
                self._confirmed[uid] = self._looks
        return sure
