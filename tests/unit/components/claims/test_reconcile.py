"""Which claims are prepared for nobody any more."""

from nodeagent.components.claims.reconcile import CONFIRM_POLLS, Doubts, explain_end, list_doubtful
from nodeagent.model.allocation import ClaimedDevice
from nodeagent.model.journal import PreparedClaim
from tests.support.claims import DRIVER, POD, POOL, make_claim


def prepared(uid: str) -> PreparedClaim:
    return PreparedClaim(uid=uid, namespace="ns", name=uid, devices=(), since_seconds=0.0)


def held(claim: str, driver: str = DRIVER) -> ClaimedDevice:
    return ClaimedDevice(
        pod=POD, container="main", claim=claim, claim_namespace="ns", driver=driver, pool=POOL, device="gpu-0"
    )


def test_a_claim_that_a_container_has_is_beyond_doubt() -> None:
    """By the kubelet's list, for this driver."""
    claims = [prepared("a"), prepared("b"), prepared("c")]
    assert list_doubtful(claims, [held("a"), held("b", "other.example.com")], DRIVER) == tuple(claims[1:])


def test_a_claim_is_over_when_the_api_server_says_so() -> None:
    one = prepared("claim-1")
    assert explain_end(one, make_claim(uid="claim-1")) == ""
    assert "gone" in explain_end(one, None)
    assert "replaced" in explain_end(one, make_claim(uid="other"))
    assert "not allocated" in explain_end(one, make_claim(is_allocated=False))
    assert "no pod" in explain_end(one, make_claim(pods=()))


def test_two_looks_must_agree() -> None:
    """One that lies between them and says otherwise begins anew."""
    doubts, one = Doubts(), prepared("a")
    doubts.begin([one])
    assert doubts.judge({"a": "gone"}) == {}
    doubts.begin([one])
    assert doubts.judge({"a": "gone"}) == {"a": "gone"}
    doubts.begin([])
    doubts.begin([one])
    assert doubts.judge({"a": "gone"}) == {}


def test_one_that_was_confirmed_is_not_asked_about_for_a_while() -> None:
    """An idle node asks the API server for nothing."""
    doubts, one = Doubts(), prepared("a")
    assert doubts.begin([one]) == (one,)
    assert doubts.judge({"a": ""}) == {}
    asked = [len(doubts.begin([one])) for _ in range(CONFIRM_POLLS)]
    assert asked == [0] * (CONFIRM_POLLS - 1) + [1]
