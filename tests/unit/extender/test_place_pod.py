"""Several containers of one pod on one node."""

from collections.abc import Mapping, Sequence

import pytest

from nodeagent.extender.place_pod import place_pod
from nodeagent.model.journal import GpuFraction
from nodeagent.rules.fractions.demands import PodDemand, read_demand
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.placement import BLOCK, account, make_sized
from tests.support.scheduling import NO_LIMITS, PROFILES, limit, make_pod

TWO = account(make_inventory(make_sized(2, 8 * BLOCK)))


def ask(
    *limits: Mapping[str, str], init: Sequence[Mapping[str, str]] = (), sidecars: Sequence[Mapping[str, str]] = ()
) -> PodDemand:
    found = read_demand(PROFILES, make_pod("x", *limits, init=init, sidecars=sidecars))
    assert found is not None
    return found


def part(index: int, cores: int, blocks: int) -> GpuFraction:
    return GpuFraction(gpu=gpu_uuid(index), cores=cores, memory_bytes=blocks * BLOCK)


@pytest.mark.parametrize(
    ("demand", "parts"),
    [
        (ask(limit(30, 1), limit(40, 2)), [part(0, 30, 1), part(0, 40, 2)]),
        (ask(limit(60, 1), NO_LIMITS, limit(60, 1)), [part(0, 60, 1), part(1, 60, 1)]),
        (ask(limit(100), limit(20, 1)), [part(0, 100, 8), part(1, 20, 1)]),
        (ask(limit(30, 4), init=[limit(20, 6)]), [part(0, 30, 4), part(0, 0, 2)]),
        (ask(limit(30, 4), init=[limit(20, 2), limit(90, 1)]), [part(0, 30, 4), part(0, 60, 0)]),
        (ask(limit(30, 4), init=[limit(200)]), [part(0, 30, 4), part(0, 70, 4), part(1, 100, 8)]),
        (ask(NO_LIMITS, init=[limit(50, 4), limit(60, 2)]), [part(0, 50, 4), part(0, 10, 0)]),
        (ask(limit(60, 4), sidecars=[limit(60, 4)]), [part(0, 60, 4), part(1, 60, 4)]),
        (ask(limit(30, 1), init=[limit(90, 1)], sidecars=[limit(30, 1)]), [part(0, 30, 1)] * 2 + [part(0, 30, 0)]),
    ],
)
def test_a_pod_takes_what_runs_together_and_what_its_init_containers_need_beyond(
    demand: PodDemand, parts: list[GpuFraction]
) -> None:
    """Of each GPU the larger of the two; an init container goes to the GPUs of those after it where it can."""
    found = place_pod(TWO, demand)
    assert found.fits
    assert list(found.parts) == parts
    assert not any(room.is_overcommitted for room in TWO.occupy(found.parts).rooms)


def test_an_init_container_runs_beside_the_sidecars_before_it() -> None:
    sidecar_first = ask(limit(10, 1), init=(), sidecars=[limit(60, 1)])
    crossed = PodDemand(
        profile="tencent",
        containers=(
            sidecar_first.containers[0],
            *ask(NO_LIMITS, init=[NO_LIMITS, limit(60, 1)]).containers,
            *ask(limit(10, 1), init=[NO_LIMITS, NO_LIMITS]).containers,
        ),
    )
    assert [each.stage for each in crossed.containers] == ["sidecar", "init", "main"]
    assert set(place_pod(TWO, crossed).parts) == {part(0, 60, 1), part(0, 10, 1), part(1, 60, 1)}


@pytest.mark.parametrize(
    ("demand", "name"),
    [
        (ask(limit(60, 1), limit(60, 1), limit(60, 1)), "c2"),
        (ask(limit(10, 1), init=[limit(300)]), "i0"),
        (ask(limit(200), sidecars=[limit(10, 1)]), "c0"),
    ],
)
def test_the_first_container_that_does_not_fit_is_named(demand: PodDemand, name: str) -> None:
    found = place_pod(TWO, demand)
    assert found.failed is not None
    assert (found.failed.name, found.parts, found.fits) == (name, (), False)


def test_a_wish_is_obeyed_where_it_can_be() -> None:
    """For containers that run on, and for those that do not."""
    demand = ask(limit(30, 4), init=[limit(20, 2)])
    found = place_pod(TWO, demand, {1: [gpu_uuid(1)], 0: [gpu_uuid(0)]})
    assert list(found.parts) == [part(1, 30, 4), part(0, 20, 2)]
    assert found.placements[1].rule == "the scheduler chose so"
