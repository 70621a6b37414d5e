"""Claims and slices as metrics."""

from nodeagent.components.exporter.families.admission import build_claim_families
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.slices import PublishedSlices

SLICES = PublishedSlices(driver="d", pool="n", generation=7, slices=2, devices=9, tainted=("gpu-0",))


def claim(uid: str, *, is_ready: bool) -> PreparedClaim:
    return PreparedClaim(uid=uid, namespace="ns", name=uid, devices=(), since_seconds=0.0, is_ready=is_ready)


def test_claims_are_counted_by_state_and_slices_by_pool() -> None:
    book = ReadyClaims(claims={uid: claim(uid, is_ready=uid != "c") for uid in "abc"})
    claims, *told = build_claim_families(book, SLICES)
    assert [(dict(labels), value) for labels, value in claims.samples] == [
        ({"state": "ready"}, 2),
        ({"state": "making"}, 1),
    ]
    assert {family.name: value for family in told for _, value in family.samples} == {
        "nodeagent_slices": 2,
        "nodeagent_slices_generation": 7,
        "nodeagent_slices_written": 1,
        "nodeagent_slice_devices": 9,
        "nodeagent_slice_devices_tainted": 1,
    }
    assert all(dict(labels) == {"driver": "d", "pool": "n"} for family in told for labels, _ in family.samples)


def test_slices_that_could_not_be_written_are_told() -> None:
    """As a number, so that an alert can be made of it."""
    broken = PublishedSlices(driver="d", pool="n", problem="forbidden")
    written = next(one for one in build_claim_families(None, broken) if one.name == "nodeagent_slices_written")
    assert [value for _, value in written.samples] == [0]


def test_a_node_that_serves_no_claims_has_no_series() -> None:
    assert all(not family.samples for family in build_claim_families(ReadyClaims(), None))
