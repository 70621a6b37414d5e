"""Where each wished GPU instance goes, and what is said of those that have no place."""

import pytest
from msgspec.structs import replace

from nodeagent.model.mig import ComputeInstance, GpuInstance, GpuPartitions
from nodeagent.rules.mig.partitions import LayoutInfeasible, aim_at, assume_places, is_met, list_targets
from nodeagent.rules.mig.solve import Kept, Solution, solve
from tests.support.mig import MIG_MODELS, cut, follow, list_feasible, partitions_of, request

H100 = "h100-sxm5-80gb"
OF_H100 = "1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"


def plan(profiles: str, there: GpuPartitions, busy: tuple[int, ...] = ()) -> Solution:
    return solve(list_targets(request(profiles), there.profiles), there, busy)


def describe(solution: Solution) -> tuple[list[int | None], list[tuple[str, int]]]:
    """What goes by its start, what comes by profile and start."""
    created = [(one.target.profile.name, one.start) for one in solution.created]
    return [one.start for one in solution.destroyed], created


def test_places_are_chosen_so_that_all_fit() -> None:
    """A 3g at the front would leave no room for a 2g and two 1g behind it."""
    _, created = describe(plan("1g.10gb 1g.10gb 2g.20gb 3g.40gb", partitions_of(H100)))
    assert created == [("3g.40gb", 4), ("2g.20gb", 0), ("1g.10gb", 2), ("1g.10gb", 3)]


def test_what_fits_already_stays() -> None:
    """Only what differs is written."""
    there = cut(H100, "3g.40gb 2g.20gb 1g.10gb 1g.10gb")
    solution = plan("3g.40gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb", there)
    assert describe(solution) == ([0], [("1g.10gb", 0), ("1g.10gb", 1)])
    assert len(solution.kept) == 3
    assert solution.writes == 2 + 4
    assert plan("3g.40gb 2g.20gb 1g.10gb 1g.10gb", there).writes == 0


def test_an_instance_that_somebody_uses_stays_where_another_way_is_cheaper() -> None:
    """Nobody is disturbed for the sake of fewer calls."""
    there = cut(H100, "1g.10gb " * 7)
    alone, one_used = plan("3g.40gb 1g.10gb", there), plan("3g.40gb 1g.10gb", there, busy=(there.instances[0].id,))
    assert alone.writes == one_used.writes
    assert [one.instance.start for one in one_used.kept] == [0]
    both = (there.instances[0].id, there.instances[6].id)
    solution = plan("2g.20gb 1g.10gb 1g.10gb", there, busy=both)
    assert [one.instance.start for one in solution.kept] == [0, 6]


def test_parts_of_instances_share_as_few_as_can_be() -> None:
    """Three 1c and a 2c of 3g instances are two of those."""
    solution = plan("1c.3g.40gb 1c.3g.40gb 1c.3g.40gb 2c.3g.40gb", partitions_of(H100))
    assert [one.target.computes for one in solution.created] == [(1, 1), (2, 1)]
    assert solution.writes == 2 + 4


def compute(number: int, slices: int) -> ComputeInstance:
    return ComputeInstance(id=number, slices=slices)


@pytest.mark.parametrize(
    ("there", "wanted", "destroyed", "created"),
    [
        ("3g.40gb", "3g.40gb", (), ()),
        ("1c.3g.40gb 1c.3g.40gb", "1c.3g.40gb", (compute(1, 1),), ()),
        ("1c.3g.40gb", "1c.3g.40gb 1c.3g.40gb", (), (1,)),
        ("2c.3g.40gb", "2c.3g.40gb 1c.3g.40gb", (), (1,)),
        ("3g.40gb", "1c.3g.40gb 1c.3g.40gb", (compute(0, 3),), (1, 1)),
        # Where the 1c lies is not known: the 2c may need its place.
        ("1c.3g.40gb", "2c.3g.40gb 1c.3g.40gb", (compute(0, 1),), (2, 1)),
    ],
)
def test_compute_instances_change_within_an_instance_that_stays(
    there: str, wanted: str, destroyed: tuple[ComputeInstance, ...], created: tuple[int, ...]
) -> None:
    """Memory that is given out already need not be cut again."""
    before = cut(H100, there)
    solution = plan(wanted, before)
    assert solution == Solution(kept=(Kept(instance=before.instances[0], destroyed=destroyed, created=created),))
    assert is_met(request(wanted), follow(solution, before))


def test_the_way_back_leads_to_the_very_places() -> None:
    """Whatever lies there now."""
    before = cut(H100, "1g.10gb 3g.40gb")
    there = cut(H100, "2g.20gb 2g.20gb")
    back = follow(solve(aim_at(before), there), there)
    assert {(one.profile_id, one.start, one.size) for one in back.instances} == {
        (one.profile_id, one.start, one.size) for one in before.instances
    }


def test_an_instance_whose_place_is_not_told_is_made_anew() -> None:
    """Nobody knows whether it is in the way."""
    there = cut(H100, "3g.40gb")
    blind = replace(there, instances=(replace(there.instances[0], start=None),))
    assert describe(plan("3g.40gb", blind)) == ([None], [("3g.40gb", 0)])


@pytest.mark.parametrize(
    ("model", "wanted", "told"),
    [
        (
            H100,
            "4g.40gb 4g.40gb",
            "4g.40gb does not fit 2 times: at most 1 of it can be on one GPU",
        ),
        (
            H100,
            "3g.40gb 3g.40gb 1g.10gb",
            "1g.10gb does not fit beside 2 x 3g.40gb: nothing more fits",
        ),
        (
            H100,
            "4g.40gb 2g.20gb 2g.20gb",
            "2g.20gb does not fit beside 1 x 4g.40gb + 1 x 2g.20gb: there is room for 1g.10gb, 1g.10gb+me or 1g.20gb",
        ),
        (
            H100,
            "4g.40gb 1g.20gb 1g.20gb 1g.10gb",
            "1g.10gb does not fit beside 1 x 4g.40gb + 2 x 1g.20gb: nothing more fits",
        ),
        (
            "a30",
            "2g.12gb 2g.12gb 1g.6gb",
            "1g.6gb does not fit beside 2 x 2g.12gb: nothing more fits",
        ),
        (
            "rtx-pro-6000-server",
            "2g.48gb 1g.24gb 1g.24gb 1g.24gb",
            "1g.24gb does not fit beside 1 x 2g.48gb + 2 x 1g.24gb: nothing more fits",
        ),
        (
            H100,
            "1g.5gb",
            f"it has no profile 1g.5gb, it has {OF_H100}; did you mean '1g.10gb'?",
        ),
        (
            H100,
            "1c.4g.20gb",
            f"it has no profile 1c.4g.20gb, it has {OF_H100}; did you mean '4g.40gb'?",
        ),
        (H100, "5g.50gb", f"it has no profile 5g.50gb, it has {OF_H100}"),
        (H100, "odd", f"it has no profile odd, it has {OF_H100}"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(model: str, wanted: str, told: str) -> None:
    """Which profile does not fit where, and what would."""
    with pytest.raises(LayoutInfeasible) as refused:
        plan(wanted, partitions_of(model))
    assert str(refused.value) == told


def test_a_profile_that_nobody_has_room_for_is_told_too() -> None:
    """A driver that lists a profile without a place for it."""
    there = partitions_of(H100)
    odd = replace(there, profiles=tuple(replace(one, placements=()) for one in there.profiles))
    with pytest.raises(LayoutInfeasible, match=r"^7g\.80gb does not fit beside nothing else: nothing more fits$"):
        plan("7g.80gb", odd)


def test_without_profiles_nothing_can_be_found() -> None:
    """As with old drivers while MIG is off."""
    with pytest.raises(LayoutInfeasible, match=r"it tells no profiles, so 1g\.10gb cannot be found among them"):
        plan("1g.10gb", GpuPartitions(enabled=False, pending=False))


@pytest.mark.parametrize("model", MIG_MODELS)
def test_every_profile_fits_as_often_as_the_driver_says(model: str) -> None:
    """On grids of 4, 8 and 12 slots."""
    there = partitions_of(model)
    for profile in there.profiles:
        solution = plan(f"{profile.name} " * profile.instances_max, there)
        assert is_met(request(f"{profile.name} " * profile.instances_max), follow(solution, there))


@pytest.mark.parametrize("model", MIG_MODELS)
def test_what_is_planned_while_mig_is_off_fits_when_it_is_on(model: str) -> None:
    """The driver tells no places then: what follows from memory and slices is what it tells later."""
    assumed = assume_places(partitions_of(model, enabled=False, with_placements=False))
    for names in list_feasible(model):
        plan(" ".join(names), assumed)


def test_a_grid_of_seven_slots_is_a_grid_too() -> None:
    """Places are the driver's to tell."""
    odd = tuple(
        replace(one, placements=tuple(range(7 // one.slice_count)), placement_size=one.slice_count)
        for one in partitions_of(H100).profiles
        if one.name in ("1g.10gb", "7g.80gb")
    )
    there = GpuPartitions(enabled=True, pending=True, profiles=odd)
    assert describe(plan("1g.10gb " * 7, there))[1] == [("1g.10gb", start) for start in range(7)]
    with pytest.raises(LayoutInfeasible, match="nothing more fits"):
        plan("7g.80gb 1g.10gb", there)


def test_an_instance_of_an_unknown_profile_goes() -> None:
    """It cannot be a part of any layout that can be named."""
    there = replace(
        partitions_of(H100), instances=(GpuInstance(id=9, profile_id=77, start=0, size=8, computes=(compute(0, 7),)),)
    )
    assert describe(plan("1g.10gb", there)) == ([0], [("1g.10gb", 0)])
    assert aim_at(there) == ()
