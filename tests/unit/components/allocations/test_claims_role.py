"""What the journal holds of claims: who has a device, who may not, and who was put away."""

import pytest

from nodeagent.components.allocations.ledger import Ledger, open_record, replay
from nodeagent.components.allocations.refuse import refuse_claimed
from nodeagent.components.allocations.roles.claims import ENDED_MAX, Prepared, Unprepared, refuse_claim
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import DeviceHeld
from nodeagent.model.ids import DeviceId
from nodeagent.model.journal import (
    ClaimSharing,
    EndedClaim,
    FractionTable,
    GpuFraction,
    PreparedClaim,
    PreparedDevice,
    SharingWay,
)
from tests.support.fractions import make_bound, make_table, part
from tests.support.gpus import gpu_uuid

POD = PodIdentity(namespace="ns", name="train", uid="pod")


def device(index: int, name: str = "", **more: object) -> PreparedDevice:
    whole = {"pool": "node", "device": name or f"gpu-{index}", "uuid": gpu_uuid(index), "gpu": gpu_uuid(index)}
    return PreparedDevice(**{"requests": ("r",), **whole, **more})  # type: ignore[arg-type]


def claim(uid: str, *devices: PreparedDevice) -> PreparedClaim:
    return PreparedClaim(uid=uid, namespace="ns", name=uid, devices=devices, since_seconds=1.0, pods=(POD,))


def refuse(new: PreparedClaim, *others: PreparedClaim, held: tuple[str, ...] = ()) -> str:
    return refuse_claim(new, {one.uid: one for one in others}, map(DeviceId, held), FractionTable())


def test_a_device_has_one_claim_and_the_other_is_named() -> None:
    said = refuse(claim("b", device(0)), claim("a", device(0)))
    assert said == "requested device gpu-0 is already allocated to different claim a"
    assert refuse(claim("b", device(1)), claim("a", device(0))) == ""
    assert refuse(claim("a", device(0)), claim("a", device(0))) == ""


def test_a_gpu_and_a_mig_device_of_it_exclude_each_other_and_two_mig_devices_do_not() -> None:
    """Whichever comes first."""
    first, second = (device(0, f"gpu-0-mig-{place}", uuid=f"MIG-{place}") for place in (0, 1))
    assert refuse(claim("b", first), claim("a", second)) == ""
    assert refuse(claim("b", first), claim("a", device(0)))
    assert refuse(claim("b", device(0)), claim("a", first))


def test_shares_stand_beside_each_other_and_admins_beside_everybody() -> None:
    """Not beside one that has no share, and not twice the same share."""
    one, two, admin = device(0, share_id="1"), device(0, share_id="2"), device(0, is_admin=True)
    assert refuse(claim("b", two), claim("a", one)) == ""
    assert refuse(claim("b", one), claim("a", one))
    assert refuse(claim("b", device(0)), claim("a", one))
    assert refuse(claim("b", admin), claim("a", device(0)), held=(gpu_uuid(0),)) == ""
    assert refuse(claim("b", device(0)), claim("a", admin)) == ""


def test_who_needs_the_whole_gpu_stands_beside_no_share() -> None:
    """A daemon of MPS and a time slice are all of the GPU's, whatever the scheduler has counted."""
    plain = ClaimSharing(way=SharingWay.TIME_SLICING, interval="Default")
    assert refuse(claim("b", device(0, share_id="2")), claim("a", device(0, share_id="1", sharing=plain))) == ""
    for sharing in (ClaimSharing(way=SharingWay.MPS), ClaimSharing(way=SharingWay.TIME_SLICING, interval="Long")):
        alone = device(0, share_id="1", sharing=sharing)
        assert refuse(claim("b", device(0, share_id="2")), claim("a", alone))
        assert refuse(claim("b", alone), claim("a", device(0, share_id="2")))


def test_shares_never_pass_what_a_gpu_has() -> None:
    """Those of the claim itself are counted too; other GPUs are other GPUs."""

    def share(index: int, number: str, cores: int, memory: int) -> PreparedDevice:
        return device(index, share_id=number, part=GpuFraction(gpu=gpu_uuid(index), cores=cores, memory_bytes=memory))

    whole = [GpuFraction(gpu=gpu_uuid(index), cores=100, memory_bytes=80) for index in range(2)]
    others = {"a": claim("a", share(0, "1", 60, 10), device(1, is_admin=True))}

    def refuse_share(new: PreparedClaim) -> str:
        return refuse_claim(new, others, (), FractionTable(), whole)

    assert refuse_share(claim("b", share(0, "2", 40, 70))) == ""
    assert refuse_share(claim("b", share(0, "2", 41, 1))) == f"the shares of {gpu_uuid(0)} would be 101 cores of 100"
    assert "would be 81 bytes of memory of 80" in refuse_share(claim("b", share(0, "2", 1, 35), share(0, "3", 1, 36)))
    assert refuse_share(claim("b", share(1, "2", 100, 80))) == ""


def test_what_the_device_plugin_has_given_is_no_claims() -> None:
    """Whole, as a share, or in parts."""
    assert "device plugin" in refuse(claim("a", device(0)), held=(f"{gpu_uuid(0)}::1",))
    parts = make_table(bindings=[make_bound(3, (1,), part(0, 10, 1))])
    assert "device plugin" in refuse_claim(claim("a", device(0)), {}, (), parts)
    assert refuse_claim(claim("a", device(1)), {}, (), parts) == ""


def test_what_a_claim_has_is_not_handed_out() -> None:
    """Nor a share of it; what is only looked at is."""
    ledger = replay([Prepared(claim=claim("a", device(0), device(1, is_admin=True)))], 10)
    with pytest.raises(DeviceHeld, match=r"held by claim ns/a$"):
        refuse_claimed(ledger, [DeviceId(f"{gpu_uuid(0)}::3")])
    refuse_claimed(ledger, [DeviceId(gpu_uuid(1))])
    refuse_claimed(Ledger(), [DeviceId(gpu_uuid(0))])


def test_one_that_was_put_away_is_remembered_with_its_pods() -> None:
    """In a journal begun anew too; one that is prepared again is not, and of many the oldest go."""
    away = Unprepared(uid="a", at_seconds=5.0, why="unprepared")
    ledger = replay([Prepared(claim=claim("a", device(0))), away, Unprepared(uid="?", at_seconds=5.0, why="")], 10)
    assert ledger.ended_claims == {"a": EndedClaim(uid="a", pods=(POD,), at_seconds=5.0)}
    assert replay([open_record(ledger, "m", "b")], 10).ended_claims == ledger.ended_claims
    assert replay([open_record(ledger, "m", "b"), Prepared(claim=claim("a"))], 10).ended_claims == {}
    many = [
        record
        for number in range(ENDED_MAX + 1)
        for record in (
            Prepared(claim=claim(str(number))),
            Unprepared(uid=str(number), at_seconds=float(number), why=""),
        )
    ]
    ended = replay(many, 10).ended_claims
    assert (len(ended), "0" in ended, str(ENDED_MAX) in ended) == (ENDED_MAX, False, True)
