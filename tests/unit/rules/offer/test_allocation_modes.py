"""Which door each GPU shall have, and when it may have it."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.allocation_modes import AllocationModeRule, AllocationModeSettings, ModeChange
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.gpu import MissingGpu
from nodeagent.model.ids import DeviceId, GpuUuid, PciAddress, ResourceName
from nodeagent.model.offering import AllocationMode, ModeHolder, ModeWord
from nodeagent.rules.offer.allocation_modes import (
    ModePlan,
    WantedMode,
    decide_allocation_mode,
    list_fraction_holders,
    list_holders,
    plan_allocation_modes,
)
from tests.support.fractions import make_bound, make_table, part
from tests.support.gpus import gpu_uuid, make_gpu, mig_uuid
from tests.support.samples import make_address

A100 = "NVIDIA A100-SXM4-80GB"
GPUS = (*(make_gpu(index) for index in range(3)), make_gpu(3, name=A100))
FIRST = "both name GPU {}: the first counts; let one of them go, or put the exception first"


def rule(door: ModeWord, *gpus: str) -> AllocationModeRule:
    return AllocationModeRule(gpus=gpus, door=door)


def plan(
    *rules: AllocationModeRule, overrides: Mapping[GpuUuid, AllocationMode] | None = None, **gpus: Any
) -> ModePlan:
    settings = Settings(doors=AllocationModeSettings(rules=rules), gpus=GpusSettings(**gpus))
    return plan_allocation_modes(reversed(GPUS), settings, overrides or {})


def doors(planned: ModePlan) -> list[str]:
    return [request.door.value for request in planned.requests]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((), "whole whole whole whole"),
        ((rule("fractions", "all"),), "fractions fractions fractions fractions"),
        ((rule("claims", "1"),), "whole claims whole whole"),
        ((rule("none", gpu_uuid(2)),), "whole whole none whole"),
        ((rule("fractions", "00000000:11:00.0"),), "whole fractions whole whole"),
        ((rule("fractions", "*A100*"),), "whole whole whole fractions"),
        ((rule("fractions", "0", "*A100*"), rule("none", "all")), "fractions none none fractions"),
        ((rule("none", "all"), rule("fractions", "0")), "none none none none"),
    ],
)
def test_the_first_rule_that_names_a_gpu_counts(rules: tuple[AllocationModeRule, ...], expected: str) -> None:
    """By all, index, UUID, PCI address in any spelling, or model; a GPU that no rule names is given whole."""
    assert doors(plan(*rules)) == expected.split()


def test_a_wish_says_why() -> None:
    """The rule, the person or the default that is behind it."""
    planned = plan(rule("fractions", "1"), overrides={gpu_uuid(2): AllocationMode.CLAIMS})
    assert [(request.index, request.gpu, request.reason) for request in planned.requests[:3]] == [
        (0, gpu_uuid(0), "the default"),
        (1, gpu_uuid(1), "doors.rules[0]"),
        (2, gpu_uuid(2), "set by a person"),
    ]
    assert (planned.conflicts, planned.unmatched) == ((), ())


def test_what_a_person_sets_counts_more_than_rules() -> None:
    assert doors(plan(rule("fractions", "all"), overrides={gpu_uuid(1): AllocationMode.WHOLE})) == [
        "fractions",
        "whole",
        "fractions",
        "fractions",
    ]


def test_a_gpu_that_is_left_alone_has_no_door() -> None:
    """Neither a rule nor a person brings one in that `gpus` leaves out."""
    planned = plan(rule("fractions", "all"), overrides={gpu_uuid(0): AllocationMode.WHOLE}, exclude=("0",))
    assert doors(planned) == ["none", "fractions", "fractions", "fractions"]
    assert planned.requests[0].reason.startswith("left alone by gpus.include, gpus.exclude")


@pytest.mark.parametrize(("door", "expected"), [("fractions", "none"), ("claims", "claims"), ("whole", "whole")])
def test_a_partitioned_gpu_has_no_fractions(door: ModeWord, expected: str) -> None:
    """Its compute and memory belong to its MIG devices; every other door can give those."""
    settings = Settings(doors=AllocationModeSettings(rules=(rule(door, "all"),)))
    (request,) = plan_allocation_modes([make_gpu(0, mig=["1g.10gb"])], settings, {}).requests
    assert request.door == expected
    assert request.reason.startswith("doors.rules[0]")
    assert ("MIG is on" in request.reason) == (door == "fractions")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((rule("fractions", "0"), rule("none", "all")), ()),
        ((rule("fractions", "*A100*"), rule("none", "all")), ()),
        ((rule("fractions", "3"), rule("none", "*A100*")), ()),
        ((rule("none", "0"), rule("none", gpu_uuid(0))), ()),
        ((rule("none", "0"), rule("fractions", "1")), ()),
        (
            (rule("fractions", "0", "1"), rule("claims", gpu_uuid(1), "2")),
            ("doors.rules[0] (fractions) and doors.rules[1] (claims) " + FIRST.format("1"),),
        ),
        (
            (rule("none", "all"), rule("claims", "*"), rule("whole", "0")),
            (
                "doors.rules[0] (none) and doors.rules[1] (claims) " + FIRST.format("0, 1, 2, 3"),
                "doors.rules[0] (none) and doors.rules[2] (whole) " + FIRST.format("0"),
                "doors.rules[1] (claims) and doors.rules[2] (whole) " + FIRST.format("0"),
            ),
        ),
    ],
)
def test_rules_that_contradict_each_other_are_named(
    rules: tuple[AllocationModeRule, ...], expected: tuple[str, ...]
) -> None:
    """One sentence for each two; an exception that stands before what it is an exception from is none."""
    assert plan(*rules).conflicts == expected


def test_names_that_mean_nothing_are_told() -> None:
    """A slip in a name would leave a GPU with the wrong door without a word."""
    gone = GpuUuid("GPU-gone")
    planned = plan(rule("fractions", "9", "*T4*", "all"), overrides={gone: AllocationMode.NONE})
    assert planned.unmatched == (
        "doors.rules[0]: '9' means no GPU of this node; mend it or take it out",
        "doors.rules[0]: '*T4*' means no GPU of this node; mend it or take it out",
        "door none was set for GPU-gone, which this node does not have",
    )


@pytest.mark.parametrize(
    ("address", "undecided"),
    [("", "9 UUID *T4* 0000:99:00.0"), ("0000:99:00.0", "9 UUID *T4* 0000:99:00.0"), ("0000:98:00.0", "9 UUID *T4*")],
    ids=["that nobody knows", "that is named", "that is another"],
)
def test_what_may_mean_a_gpu_that_does_not_answer_is_no_slip(address: str, undecided: str) -> None:
    """Only its place is known, if that: its index, its UUID and its model are learnt when it answers."""
    silent = MissingGpu(address=PciAddress(address), device_id=0, reason="it hangs")
    rules, gone = (rule("fractions", "9", "*T4*", "0", "99:00.0", "all"),), GpuUuid("GPU-gone")
    planned = plan_allocation_modes(
        GPUS, Settings(doors=AllocationModeSettings(rules=rules)), {gone: AllocationMode.NONE}, [silent]
    )
    names = {
        "9": "doors.rules[0]: '9'",
        "*T4*": "doors.rules[0]: '*T4*'",
        "0000:99:00.0": "doors.rules[0]: '99:00.0'",
        "UUID": "the door none set for GPU-gone",
    }
    assert set(planned.undecided) == {names[name] for name in undecided.split()}
    assert len(planned.unmatched) == 4 - len(planned.undecided)


def test_holders_are_found_by_whatever_they_have_of_the_gpu() -> None:
    """The GPU, a share of it, one of its MIG devices; nobody of another GPU."""
    given: list[list[str]] = [
        [gpu_uuid(0)],
        [f"{gpu_uuid(0)}::1"],
        [mig_uuid(0, 0)],
        [gpu_uuid(1)],
        [mig_uuid(1, 0), mig_uuid(0, 0)],
    ]
    allocations = [
        Allocation(
            number=number,
            resource=ResourceName("nvidia.com/gpu"),
            devices=tuple(DeviceId(device) for device in devices),
            since_seconds=0.0,
            pod=PodIdentity(namespace="ns", name="p"),
            container="c",
        )
        for number, devices in enumerate(given)
    ]
    holders = list_holders(make_gpu(0, mig=["1g.10gb"]), allocations, AllocationMode.WHOLE)
    assert [each.name for each in holders] == [f"allocation {number}" for number in (0, 1, 2, 4)]
    assert {(each.door, each.describe()) for each in holders} == {(AllocationMode.WHOLE, "ns/p (c)")}


def request(door: AllocationMode) -> WantedMode:
    return WantedMode(gpu=gpu_uuid(0), index=0, address=make_address(0), door=door, reason="doors.rules[0]")


def inside(door: AllocationMode, name: str = "one") -> ModeHolder:
    return ModeHolder(door=door, name=name)


W, F, C, N = AllocationMode.WHOLE, AllocationMode.FRACTIONS, AllocationMode.CLAIMS, AllocationMode.NONE


@pytest.mark.parametrize(
    ("wanted", "came_by", "change", "door", "is_open", "waits_for"),
    [
        # Nobody inside: at once as wished.
        (F, (), "drain", F, True, ()),
        (N, (), "wait", N, False, ()),
        # All inside came by the wished door.
        (W, (W, W), "drain", W, True, ()),
        # They came by another: it stays theirs.
        (F, (W,), "drain", W, False, (W,)),
        (F, (W, W), "wait", W, True, (W, W)),
        (N, (F,), "drain", F, False, (F,)),
        (N, (F,), "wait", F, True, (F,)),
        # They came by several: nobody new comes in, whatever the configuration says.
        (F, (W, F), "wait", F, False, (W,)),
        (C, (F, W), "wait", W, False, (F, W)),
    ],
)
def test_a_door_changes_when_nobody_is_inside(
    wanted: AllocationMode,
    came_by: tuple[AllocationMode, ...],
    change: ModeChange,
    door: AllocationMode,
    is_open: bool,
    waits_for: tuple[AllocationMode, ...],
) -> None:
    """Until then it is the old one, open or closed for others, and who is waited for is named."""
    state = decide_allocation_mode(request(wanted), [inside(each) for each in came_by], change)
    assert (state.door, state.wanted, state.is_open) == (door, wanted, is_open)
    assert [each.door for each in state.waits_for] == list(waits_for)
    assert (state.gpu, state.index, state.reason) == (gpu_uuid(0), 0, "doors.rules[0]")


def test_a_change_that_waits_ends_by_itself() -> None:
    """As they leave one after another, and also where the wish is taken back."""
    first, second = inside(W, "first"), inside(W, "second")
    for holders in ([first, second], [second]):
        assert decide_allocation_mode(request(F), holders, "drain").describe().startswith("GPU 0: door whole until")
    assert decide_allocation_mode(request(F), [], "drain").is_open
    back = decide_allocation_mode(replace(request(F), door=W), [first, second], "drain")
    assert (back.door, back.is_open, back.is_settled) == (W, True, True)


def test_whoever_has_a_part_of_a_gpu_holds_its_door() -> None:
    """By pod and container; a part of another GPU is in nobody's way."""
    table = make_table(bindings=[make_bound(7, [1], part(0, 30, 8), part(1, 30, 8)), make_bound(8, [2], part(1, 1, 1))])
    assert [holder.describe() for holder in list_fraction_holders(gpu_uuid(0), table)] == ["ns/a (main)"]
    assert [holder.name for holder in list_fraction_holders(gpu_uuid(1), table)] == ["binding 7", "binding 8"]
    assert {holder.door for holder in list_fraction_holders(gpu_uuid(1), table)} == {AllocationMode.FRACTIONS}
    assert list_fraction_holders(gpu_uuid(2), table) == ()
