"""A single MIG device is made and taken away whatever lies beside it, and never at the cost of that."""

import pytest
from msgspec.structs import replace

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, Step
from nodeagent.model.mig import ComputeInstance, GpuPartitions, PartitionRequest, Write, WriteKind
from nodeagent.rules.mig.change import ChangeUnreadable, write_step
from nodeagent.rules.mig.partitions import LayoutInfeasible
from nodeagent.rules.mig.single import (
    OWNER,
    Holding,
    Phase,
    begin_holding,
    find_instance,
    phase_step,
    plan_making,
    plan_removal,
    read_holding,
)
from nodeagent.rules.mig.steps import RebootNeeded
from tests.support.mig import cut, partitions_of

H100 = "h100-sxm5-80gb"
GPU = GpuUuid("GPU-0")
EMPTY, OFF = partitions_of(H100), partitions_of(H100, enabled=False, with_placements=False)
BALANCED = cut(H100, "3g.40gb 2g.20gb 1g.10gb 1g.10gb")


def request_for(profile: str, start: int) -> PartitionRequest:
    return PartitionRequest(gpu=GPU, profile=profile, start=start)


def hold(profile: str, start: int, *, switched: bool = False, has_created: bool = True, number: int = 1) -> Holding:
    request = request_for(profile, start)
    return Holding(number=number, key="claim", request=request, switched=switched, has_created=has_created)


def kinds(writes: tuple[Write, ...]) -> list[WriteKind]:
    return [write.kind for write in writes]


def test_a_device_is_made_at_its_place() -> None:
    """By two calls, where there is room."""
    instance, compute = plan_making(request_for("1g.10gb", 3), EMPTY, is_own=False)
    assert (instance.kind, instance.start, instance.size, instance.profile) == (WriteKind.CREATE, 3, 1, "1g.10gb")
    assert (compute.kind, compute.slices) == (WriteKind.CREATE_COMPUTE, 1)


def test_the_mode_comes_first() -> None:
    """At once where it counts at once; else with a reset, and where that does not help it is said."""
    request = request_for("1g.10gb", 0)
    assert kinds(plan_making(request, OFF, is_own=False)) == [WriteKind.MODE_ON]
    pending = replace(OFF, pending=True)
    assert kinds(plan_making(request, pending, is_own=False)) == [WriteKind.RESET]
    with pytest.raises(RebootNeeded):
        plan_making(request, pending, is_own=False, was_reset=True)
    untold = replace(OFF, profiles=())
    assert kinds(plan_making(request, untold, is_own=False)) == [WriteKind.MODE_ON]


def test_what_was_made_is_not_made_again() -> None:
    """What a kill left out of it is; what is another's is in the way."""
    request = request_for("1g.10gb", next(one.start or 0 for one in BALANCED.instances if one.size == 1))
    there = find_instance(request, BALANCED)
    assert there is not None
    assert plan_making(request, BALANCED, is_own=True) == ()
    with pytest.raises(LayoutInfeasible, match=f"GPU instance {there.id} lies there"):
        plan_making(request, BALANCED, is_own=False)
    hollow = replace(EMPTY, instances=(replace(there, computes=()),))
    (compute,) = plan_making(request, hollow, is_own=True)
    assert (compute.kind, compute.instance, compute.slices) == (WriteKind.CREATE_COMPUTE, there.id, 1)


def test_a_device_that_somebody_divided_is_told() -> None:
    made = cut(H100, "2g.20gb")
    (instance,) = made.instances
    parts = (ComputeInstance(id=0, slices=1), ComputeInstance(id=1, slices=1))
    divided = replace(made, instances=(replace(instance, computes=parts),))
    with pytest.raises(LayoutInfeasible, match="divided by somebody else"):
        plan_making(request_for("2g.20gb", instance.start or 0), divided, is_own=True)


@pytest.mark.parametrize(
    ("partitions", "profile", "start", "reason"),
    [
        (EMPTY, "1g.5gb", 0, "it has no profile 1g.5gb, it has 1g.10gb"),
        (replace(EMPTY, profiles=()), "1g.5gb", 0, "none that the driver tells"),
        (EMPTY, "2g.20gb", 1, "2g.20gb cannot begin at slot 1, it can at 0, 2, 4"),
        (OFF, "4g.40gb", 4, "cannot begin at slot 4"),
        (cut(H100, "4g.40gb 3g.40gb"), "1g.10gb", 2, "there is no room for 1g.10gb at slot 2: GPU instance"),
    ],
)
def test_what_cannot_be_is_refused(partitions: GpuPartitions, profile: str, start: int, reason: str) -> None:
    with pytest.raises(LayoutInfeasible, match=reason):
        plan_making(request_for(profile, start), partitions, is_own=False)


def test_compute_may_run_out_before_places_do() -> None:
    """As on a GPU whose last memory slot has no compute of its own."""
    taken = cut(H100, "4g.40gb 1g.10gb 1g.10gb 1g.10gb")
    free = next(start for start in range(8) if _is_free(taken, start))
    profiles = tuple(replace(one, placements=(*one.placements, free)) for one in taken.profiles)
    with pytest.raises(LayoutInfeasible, match="have all the compute"):
        plan_making(request_for("1g.10gb", free), replace(taken, profiles=profiles), is_own=False)


def _is_free(partitions: GpuPartitions, slot: int) -> bool:
    return not any((one.start or 0) <= slot < (one.start or 0) + one.size for one in partitions.instances)


def test_an_instance_of_unknown_place_leaves_no_room() -> None:
    (instance,) = cut(H100, "1g.10gb").instances
    with pytest.raises(LayoutInfeasible, match="no room"):
        plan_making(request_for("3g.40gb", 4), replace(EMPTY, instances=(replace(instance, start=None),)), is_own=False)


def test_removal_takes_what_was_made_and_nothing_else() -> None:
    """Not what lies there without having been made for it."""
    places = {one.size: one for one in BALANCED.instances}
    start = places[2].start or 0
    writes = plan_removal(hold("2g.20gb", start), BALANCED, [])
    assert kinds(writes) == [WriteKind.DESTROY_COMPUTE, WriteKind.DESTROY]
    assert {write.instance for write in writes} == {places[2].id}
    assert plan_removal(hold("2g.20gb", start, has_created=False), BALANCED, []) == ()
    assert plan_removal(hold("7g.80gb", 0), BALANCED, []) == ()
    assert plan_removal(hold("1g.5gb", 0), BALANCED, []) == ()


def test_the_mode_goes_with_the_last_one() -> None:
    """Where it came with the first, and nothing else is on the GPU."""
    last, other = hold("1g.10gb", 0, switched=True), hold("1g.10gb", 1, number=2)
    elsewhere = replace(other, request=replace(other.request, gpu=GpuUuid("GPU-1")))
    assert kinds(plan_removal(last, EMPTY, [elsewhere])) == [WriteKind.MODE_OFF]
    assert plan_removal(last, EMPTY, [other]) == ()
    assert plan_removal(hold("1g.10gb", 0), EMPTY, []) == ()
    assert plan_removal(hold("7g.80gb", 0, switched=True), BALANCED, []) == ()
    waiting = replace(EMPTY, pending=False)
    assert kinds(plan_removal(last, waiting, [])) == [WriteKind.RESET]
    assert plan_removal(last, waiting, [], was_reset=True) == ()
    assert plan_removal(last, OFF, []) == ()


def test_the_journal_says_how_far_it_is() -> None:
    """What was told last counts; a place is its own once an instance was begun."""
    request = request_for("1g.10gb", 2)
    steps = [begin_holding("claim", request, 1.0, switched=True)]

    def read() -> Holding:
        return read_holding(Change(number=7, owner=OWNER, gpu=GPU, steps=tuple(steps)))

    assert read() == Holding(number=7, key="claim", request=request, switched=True)
    steps.append(write_step([Write(kind=WriteKind.MODE_ON)], 2.0))
    assert not read().has_created
    steps.append(write_step([Write(kind=WriteKind.CREATE)], 3.0))
    assert read().has_created
    steps.append(phase_step(Phase.MADE, 4.0))
    assert read().phase is Phase.MADE
    steps.append(phase_step(Phase.LEAVING, 5.0))
    assert read().phase is Phase.LEAVING


@pytest.mark.parametrize("steps", [(), (Step(name="begin", at_seconds=0.0, payload="{"),)])
def test_a_holding_of_a_later_version_is_not_guessed_at(steps: tuple[Step, ...]) -> None:
    with pytest.raises(ChangeUnreadable, match="change 7 of GPU-0"):
        read_holding(Change(number=7, owner=OWNER, gpu=GPU, steps=steps))
