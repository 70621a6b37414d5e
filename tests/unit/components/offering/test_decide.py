"""The doors of all GPUs, and what is said of them."""

from msgspec.structs import replace

from nodeagent.components.offering.decide import cordon_offering, decide_conditions, list_served, plan_offering
from nodeagent.config.schema import Settings
from nodeagent.config.sections.allocation_modes import AllocationModeRule, AllocationModeSettings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.gpu import MissingGpu
from nodeagent.model.ids import DeviceId, PciAddress, ResourceName
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.model.offering import AllocationMode, ModeWord
from tests.support.fractions import make_bound, make_settings, make_table, part
from tests.support.gpus import gpu_uuid, make_gpu

TWO = (make_gpu(0), make_gpu(1))


def rule(door: ModeWord, *gpus: str) -> AllocationModeRule:
    return AllocationModeRule(gpus=gpus, door=door)


def held(index: int) -> Allocation:
    return Allocation(
        number=1,
        resource=ResourceName("nvidia.com/gpu"),
        devices=(DeviceId(gpu_uuid(index)),),
        since_seconds=0.0,
        pod=PodIdentity(namespace="ns", name="train"),
        container="main",
    )


def test_without_rules_every_gpu_is_given_whole_and_nothing_is_said() -> None:
    offering = plan_offering(TWO, Settings(), {}, [held(0)])
    assert [(each.door, each.is_open, each.is_settled) for each in offering.doors] == [
        (AllocationMode.WHOLE, True, True)
    ] * 2
    assert not any(decide_conditions(offering, list_served(Settings())).values())


def test_a_choice_outranks_the_rules_and_waits_for_those_inside() -> None:
    """Closed for new ones until then, and each surface says who is waited for."""
    settings = Settings(doors=AllocationModeSettings(rules=(rule("whole", "all"),)))
    offering = plan_offering(
        TWO, settings, {gpu_uuid(0): AllocationMode.NONE, gpu_uuid(1): AllocationMode.NONE}, [held(0)]
    )
    first, second = offering.doors
    assert (first.door, first.wanted, first.is_open, second.door, second.is_open) == (
        AllocationMode.WHOLE,
        AllocationMode.NONE,
        False,
        AllocationMode.NONE,
        False,
    )
    waits = decide_conditions(offering, list_served(Settings()))["door-waits"]
    assert waits == {gpu_uuid(0): first.describe()}
    assert "until ns/train (main) is gone, then none (set by a person)" in first.describe()


def test_a_change_that_waits_goes_on_giving_through_the_old_door() -> None:
    settings = Settings(doors=AllocationModeSettings(rules=(rule("none", "0"),), change="wait"))
    (first, _) = plan_offering(TWO, settings, {}, [held(0)]).doors
    assert (first.door, first.is_open) == (AllocationMode.WHOLE, True)


def test_doors_without_anybody_behind_them_and_unclear_rules_are_told() -> None:
    """Fractions and claims are promised by rules before anything gives them out."""
    settings = Settings(
        doors=AllocationModeSettings(rules=(rule("fractions", "0"), rule("none", "0"), rule("none", "nope")))
    )
    offering = plan_offering(TWO, settings, {}, [])
    assert not offering.doors[0].is_open
    found = decide_conditions(offering, list_served(Settings()))
    assert found["door-unserved"] == {gpu_uuid(0): "GPU 0: door fractions (doors.rules[0])"}
    assert "doors.rules[0] (fractions) and doors.rules[1] (none) both name GPU 0" in found["doors-unclear"][""]
    assert "'nope' means no GPU of this node" in found["doors-unclear"][""]


def test_with_parts_served_their_door_is_open_and_holds_whoever_has_some() -> None:
    """A GPU goes from whole to parts when nobody has it whole, and back when nobody has a part of it."""
    settings = make_settings(0)
    assert AllocationMode.FRACTIONS in list_served(settings)
    offering = plan_offering(TWO, settings, {}, [])
    assert [(each.door, each.is_open) for each in offering.doors] == [
        (AllocationMode.FRACTIONS, True),
        (AllocationMode.WHOLE, True),
    ]
    assert not any(decide_conditions(offering, list_served(settings)).values())
    waiting = plan_offering(TWO, settings, {}, [held(0)])
    assert (waiting.doors[0].door, waiting.doors[0].is_open) == (AllocationMode.WHOLE, False)
    parts = make_table(bindings=[make_bound(7, [1], part(0, 30, 8))])
    back = plan_offering(TWO, settings, {gpu_uuid(0): AllocationMode.WHOLE}, [], parts)
    assert (back.doors[0].door, back.doors[0].wanted) == (AllocationMode.FRACTIONS, AllocationMode.WHOLE)
    assert "until ns/a (main) is gone, then whole" in back.doors[0].describe()


def test_a_gpu_that_a_claim_has_keeps_its_door_until_the_claim_is_put_away() -> None:
    """Its pods are who is waited for; a claim that only looks at it is in nobody's way."""
    settings = Settings(claims=ClaimsSettings(enabled=True))
    assert AllocationMode.CLAIMS in list_served(settings)
    pod = PodIdentity(namespace="ns", name="train")
    device = PreparedDevice(requests=("r",), pool="n", device="gpu-0", uuid=gpu_uuid(0), gpu=gpu_uuid(0))
    claims = {
        "a": PreparedClaim(uid="a", namespace="ns", name="a", devices=(device,), since_seconds=0.0, pods=(pod,)),
        "b": PreparedClaim(
            uid="b",
            namespace="ns",
            name="b",
            devices=(replace(device, uuid=gpu_uuid(1), gpu=gpu_uuid(1), is_admin=True),),
            since_seconds=0.0,
        ),
    }
    first, second = plan_offering(TWO, settings, {}, [], claims=ReadyClaims(claims=claims)).doors
    assert (first.door, first.wanted, first.is_open, second.door) == (
        AllocationMode.CLAIMS,
        AllocationMode.WHOLE,
        False,
        AllocationMode.WHOLE,
    )
    assert [holder.describe() for holder in first.waits_for] == ["ns/train"]
    nameless = {"a": replace(claims["a"], pods=())}
    (door, _) = plan_offering(TWO, settings, {}, [], claims=ReadyClaims(claims=nameless)).doors
    assert [holder.describe() for holder in door.waits_for] == ["claim ns/a"]


def test_a_gpu_that_does_not_answer_has_no_door_yet() -> None:
    """The rules are not blamed for it, but for what else is wrong with them."""
    silent = [
        MissingGpu(address=PciAddress("0000:c3:00.0"), device_id=0, reason="GPU at index 2: it hangs"),
        MissingGpu(address=PciAddress(""), device_id=0, reason="GPU at index 3: it hangs"),
    ]
    settings = Settings(doors=AllocationModeSettings(rules=(rule("none", "2", "0"), rule("whole", "0"))))
    for missing, code in ((silent, "door-undecided"), ([], "doors-unclear")):
        found = decide_conditions(plan_offering(TWO, settings, {}, [], missing=missing), list_served(settings))
        assert "both name GPU 0" in found["doors-unclear"][""]
        assert [each for each, told in found.items() if any("'2'" in one for one in told.values())] == [code]
    (first,) = decide_conditions(plan_offering(TWO, settings, {}, [], missing=silent[:1]), list_served(settings))[
        "door-undecided"
    ].values()
    assert first == (
        "0000:c3:00.0 (GPU at index 2: it hangs) may be meant by doors.rules[0]: '2'; that is decided when it answers"
    )
    undecided = plan_offering(TWO, settings, {}, [], missing=silent).undecided
    assert ", a GPU (GPU at index 3: it hangs) may be meant by" in undecided


def cordon(index: int, source: CordonSource = CordonSource.COMMAND) -> Cordon:
    return Cordon(gpu=gpu_uuid(index), source=source, named=str(index), reason="fan", who="ann")


def test_a_cordon_closes_a_gpu_and_changes_no_mode() -> None:
    """The other GPU stays as it was, and a cordon of a GPU that is not there closes nothing."""
    offering = plan_offering(TWO, Settings(), {}, [held(0)])
    cordoned = cordon_offering(offering, [cordon(0), cordon(7)], TWO, [held(0)])
    first, second = cordoned.doors
    assert second == offering.doors[1]
    assert (first.door, first.is_open, first.is_settled) == (AllocationMode.WHOLE, False, True)
    assert first.describe() == "GPU 0: cordoned by ann: fan, which waits for ns/train (main)"
    assert decide_conditions(cordoned, list_served(Settings()))["gpu-cordoned"] == {gpu_uuid(0): first.describe()}
    assert cordoned.list_closed(TWO, AllocationMode.WHOLE) == {gpu_uuid(0): first.explain()}
    assert cordoned.list_elsewhere(TWO, AllocationMode.WHOLE) == {}
    assert cordoned.list_elsewhere(TWO, AllocationMode.CLAIMS).keys() == {gpu_uuid(0), gpu_uuid(1)}
    assert cordoned.list_cordoned() == {gpu_uuid(0): first.explain()}
    assert cordon_offering(offering, [], TWO, [held(0)]) is offering


def test_the_holders_of_every_mode_are_waited_for() -> None:
    """Two cordons of a GPU are told both."""
    table = make_table(bindings=[make_bound(1, (), part(1, 10, 1))])
    offering = cordon_offering(
        plan_offering(TWO, make_settings(), {}, [], table), [cordon(1), cordon(1, CordonSource.HAMI)], TWO, [], table
    )
    told = offering.doors[1].explain()
    assert told.startswith("cordoned by ann: fan and by the annotation hami.io/device-cordon: fan, which waits for ns/")


def test_a_cordoned_gpu_may_change_its_mode_meanwhile() -> None:
    """Both are told, and the change goes on as without a cordon."""
    offering = plan_offering(TWO, Settings(), {gpu_uuid(0): AllocationMode.NONE}, [held(0)])
    first, _ = cordon_offering(offering, [cordon(0)], TWO, [held(0)]).doors
    assert first.waits_for == offering.doors[0].waits_for
    assert "cordoned by ann: fan; door whole until ns/train (main) is gone, then none" in first.explain()
    assert cordon_offering(offering, [cordon(0)], TWO, [held(0)]).list_elsewhere(TWO, AllocationMode.WHOLE)
