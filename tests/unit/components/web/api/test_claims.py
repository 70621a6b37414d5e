"""Claims as the API tells them, and beside what the device plugin has handed out."""

from nodeagent.components.web.api.claims import join_claims, record_claims
from nodeagent.core.values import ActiveCondition
from nodeagent.model.allocation import Allocation, AllocationSource, AllocationTable, ClaimedDevice, ClaimTable
from nodeagent.model.claims import ClaimStanding, ReadyClaims
from nodeagent.model.ids import DeviceId, MigUuid, ResourceName
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from tests.support.claims import DRIVER, POD, POOL
from tests.support.gpus import gpu_uuid


def prepared(name: str, *devices: PreparedDevice) -> PreparedClaim:
    return PreparedClaim(uid=f"uid-{name}", namespace="ns", name=name, devices=devices, since_seconds=5.0, pods=(POD,))


def device(index: int, uuid: str | None = None) -> PreparedDevice:
    known = gpu_uuid(index) if uuid is None else MigUuid(uuid)
    return PreparedDevice(requests=("r",), pool=POOL, device=f"gpu-{index}", uuid=known, gpu=gpu_uuid(index))


def book(*claims: PreparedClaim) -> ReadyClaims:
    return ReadyClaims(claims={claim.uid: claim for claim in claims})


def held(claim: str, container: str, device: str = "gpu-0") -> ClaimedDevice:
    return ClaimedDevice(
        pod=POD, container=container, claim=claim, claim_namespace="ns", driver=DRIVER, pool=POOL, device=device
    )


ONE = Allocation(number=3, resource=ResourceName("nvidia.com/gpu"), devices=(DeviceId("GPU-x"),), since_seconds=1.0)


def test_who_has_a_claim_stands_beside_who_got_a_device_otherwise() -> None:
    """Each container once, whatever the number of its devices; before the kubelet lists it, the pod."""
    table = ClaimTable(devices=(held("a", "left"), held("a", "right"), held("a", "left", "gpu-1"), held("?", "x")))
    claims = book(prepared("a", device(0), device(1)), prepared("b", device(2)), prepared("c", device(3, "")))
    joined = join_claims(AllocationTable(allocations=(ONE,)), claims, table)
    assert joined is not None
    assert joined.allocations[0] == ONE
    assert [(str(one.resource), one.container, tuple(map(str, one.devices))) for one in joined.allocations[1:]] == [
        ("claim ns/a", "left", (gpu_uuid(0), gpu_uuid(1))),
        ("claim ns/a", "right", (gpu_uuid(0), gpu_uuid(1))),
        ("claim ns/b", "", (gpu_uuid(2),)),
    ]
    assert {(one.pod, one.source) for one in joined.allocations[1:]} == {(POD, AllocationSource.CLAIM)}


def test_without_claims_all_is_as_it_was() -> None:
    assert join_claims(None, None, None) is None
    table = AllocationTable(allocations=(ONE,))
    assert join_claims(table, ReadyClaims(), None) is table
    joined = join_claims(None, book(prepared("a", device(0))), None)
    assert joined is not None
    assert len(joined.allocations) == 1


def test_the_record_has_what_is_ready_and_what_was_refused() -> None:
    """In the order of names; other conditions are others' business."""

    def condition(code: str, key: str, detail: str) -> ActiveCondition:
        return ActiveCondition(
            code=code, key=key, severity="warning", title="t", detail=detail, remedy="r", since=9.0, cause=None
        )

    standing = ClaimStanding(driver=DRIVER, socket="/s", registered=True)
    record = record_claims(
        book(prepared("b", device(1)), prepared("a", device(0))),
        None,
        standing,
        [condition("claim-refused", "ns/x", "ns/x: no such device"), condition("other", "", "?")],
    )
    assert [one.claim.name for one in record.prepared] == ["a", "b"]
    assert [(one.claim, one.reason, one.since_seconds) for one in record.refused] == [("ns/x", "no such device", 9.0)]
    assert record.standing == standing
    assert record_claims(None, None, None, []).prepared == ()
