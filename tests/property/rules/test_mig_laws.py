"""Laws of MIG layouts: from whatever there is to whatever fits, by as few calls that write as can be."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.mig import GpuPartitions
from nodeagent.rules.mig.partitions import LayoutInfeasible, Target, aim_at, is_met, list_targets
from nodeagent.rules.mig.solve import solve
from tests.support.mig import MIG_MODELS, cut, follow, is_allowed, list_feasible, request


@st.composite
def two_layouts(draw: st.DrawFn) -> tuple[str, str, str]:
    """A model, and two sets of profiles that fit on it."""
    model = draw(st.sampled_from(MIG_MODELS))
    layouts = st.sampled_from(list_feasible(model)).map(" ".join)
    return model, draw(layouts), draw(layouts)


@given(two_layouts(), st.data())
def test_from_any_state_to_any_layout_that_fits(drawn: tuple[str, str, str], data: st.DataObject) -> None:
    """Applied twice it changes nothing the second time; nobody who can stay is disturbed; and the way back is exact."""
    model, first, second = drawn
    there = cut(model, first)
    busy = data.draw(st.sets(st.sampled_from([one.id for one in there.instances] or [0])))
    targets = list_targets(request(second), there.profiles)
    solution = solve(targets, there, busy)
    after = follow(solution, there)
    assert is_met(request(second), after)
    assert solve(targets, after).writes == 0
    back = follow(solve(aim_at(there), after), after)
    places = {(one.profile_id, one.start) for one in there.instances}
    assert {(one.profile_id, one.start) for one in back.instances} == places
    assert solve(targets, there).writes <= solution.writes


@given(st.sampled_from(MIG_MODELS), st.data())
def test_a_layout_is_refused_only_if_it_cannot_be(model: str, data: st.DataObject) -> None:
    """Compared with every way to place it; and no cheaper one is overlooked."""
    there = cut(model, " ".join(data.draw(st.sampled_from(list_feasible(model)))))
    names = data.draw(st.lists(st.sampled_from([one.name for one in there.profiles]), min_size=1, max_size=4))
    targets = list_targets(request(" ".join(names)), there.profiles)
    ways = list_ways(targets, there)
    try:
        solution = solve(targets, there)
    except LayoutInfeasible:
        assert not ways
    else:
        assert solution.writes == min(ways)


def list_ways(targets: tuple[Target, ...], there: GpuPartitions) -> list[int]:
    """What each way costs that the rules of the hardware allow."""
    ways = []
    here = {(one.profile_id, one.start) for one in there.instances}
    for starts in product(*(one.profile.placements for one in targets)):
        placed = [(one.profile, start) for one, start in zip(targets, starts, strict=True)]
        if is_allowed(placed):
            kept = sum((profile.profile_id, start) in here for profile, start in placed)
            ways.append(2 * (len(there.instances) - kept) + 2 * (len(targets) - kept))
    return ways
