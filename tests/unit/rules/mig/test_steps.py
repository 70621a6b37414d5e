"""By which calls a GPU gets from what it is to what it shall be."""

import pytest
from msgspec.structs import replace

from nodeagent.model.mig import GpuPartitions, WriteKind
from nodeagent.rules.mig.partitions import LayoutInfeasible
from nodeagent.rules.mig.steps import Goal, RebootNeeded, check_goal, plan_writes
from nodeagent.rules.mig.wanted import Wanted
from tests.support.mig import cut, partitions_of, request

H100 = "h100-sxm5-80gb"
OFF = Wanted(enabled=False)


def words(goal: Goal, there: GpuPartitions) -> list[str]:
    return [write.describe() for write in plan_writes(goal, there)]


def test_nothing_is_written_where_the_goal_is_reached() -> None:
    """Neither on a GPU that is cut so, nor on one that is whole."""
    assert plan_writes(Goal(wanted=request("1g.10gb")), cut(H100, "1g.10gb")) == ()
    assert plan_writes(Goal(wanted=OFF), partitions_of(H100, enabled=False)) == ()


def test_what_goes_goes_before_what_comes() -> None:
    """Each compute instance before its GPU instance, and the other way round."""
    assert words(Goal(wanted=request("4g.40gb")), cut(H100, "3g.40gb")) == [
        "destroy compute instance 0 of GPU instance 100",
        "destroy GPU instance 100 (3g.40gb at slot 0)",
        "create GPU instance 4g.40gb at slot 0",
        "create a compute instance of 4 in it",
    ]


def test_compute_instances_change_in_place() -> None:
    """The GPU instance around them stays."""
    assert words(Goal(wanted=request("1c.3g.40gb 1c.3g.40gb")), cut(H100, "3g.40gb")) == [
        "destroy compute instance 0 of GPU instance 100",
        "create a compute instance of 1 in GPU instance 100",
        "create a compute instance of 1 in GPU instance 100",
    ]


def test_the_mode_is_switched_before_anything_is_made() -> None:
    """And then the GPU is read anew: only now it tells its places."""
    off = partitions_of(H100, enabled=False, with_placements=False)
    goal = Goal(wanted=request("1g.10gb"))
    assert words(goal, off) == ["switch MIG on"]
    assert words(goal, replace(off, profiles=())) == ["switch MIG on"]
    assert words(goal, replace(off, pending=True)) == ["reset the GPU, so that its new mode counts"]
    with pytest.raises(RebootNeeded):
        plan_writes(goal, replace(off, pending=True), was_reset=True)


def test_the_mode_is_switched_off_on_an_empty_gpu() -> None:
    """The driver refuses it otherwise."""
    assert words(Goal(wanted=OFF), cut(H100, "7g.80gb")) == [
        "destroy compute instance 0 of GPU instance 100",
        "destroy GPU instance 100 (7g.80gb at slot 0)",
        "switch MIG off",
    ]


def test_a_mode_that_somebody_has_set_for_later_is_taken_back() -> None:
    """Or the next reset would undo the layout."""
    there = replace(cut(H100, "1g.10gb"), pending=False)
    assert words(Goal(wanted=request("1g.10gb 1g.10gb")), there) == [
        "switch MIG on",
        "create GPU instance 1g.10gb at slot 1",
        "create a compute instance of 1 in it",
    ]


def test_an_impossible_layout_is_refused_before_the_mode_is_switched() -> None:
    """As far as the driver tells what there is."""
    off = partitions_of(H100, enabled=False)
    goal = Goal(wanted=request("4g.40gb 4g.40gb"))
    with pytest.raises(LayoutInfeasible):
        plan_writes(goal, off)
    assert check_goal(goal, off) == "4g.40gb does not fit 2 times: at most 1 of it can be on one GPU"
    assert check_goal(goal, replace(off, profiles=())) == ""


def test_the_way_back_ends_where_it_began() -> None:
    """At the very places, and with the mode of before."""
    before = cut(H100, "1g.10gb 3g.40gb")
    goal = Goal(before=replace(before, profiles=()))
    assert plan_writes(goal, before) == ()
    moved = cut(H100, "1g.10gb 1g.10gb")
    kinds = [write.kind for write in plan_writes(goal, moved)]
    assert WriteKind.CREATE in kinds
    off = Goal(before=partitions_of(H100, enabled=False))
    assert words(off, replace(partitions_of(H100, enabled=False), pending=True)) == ["switch MIG off"]
    assert words(off, partitions_of(H100)) == ["switch MIG off"]
    assert plan_writes(off, partitions_of(H100, enabled=False)) == ()


def test_an_instance_whose_place_is_not_told_goes_without_one() -> None:
    """And one of a profile that is not told goes by its number."""
    there = cut(H100, "3g.40gb")
    blind = replace(there, instances=(replace(there.instances[0], start=None, profile_id=77),))
    assert words(Goal(wanted=Wanted(enabled=True)), blind)[-1] == "destroy GPU instance 100 (profile 77)"
    assert plan_writes(Goal(before=blind), blind) == ()
