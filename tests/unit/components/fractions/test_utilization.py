"""What containers are told of how busy their GPUs are."""

import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.utilization_task import plan_measures
from nodeagent.components.usage.measure import measure
from nodeagent.model.fractions import MeasuredUtilization
from nodeagent.model.journal import Binding, Enforcement
from nodeagent.model.telemetry import GpuSample, NodeSample, ProcessSample
from nodeagent.model.usage import FractionUsage
from tests.support.samples import make_inventory, make_uuid
from tests.unit.components.usage.builders import START, bind, place, run, sample, tabulate

NUMBER = int(START * 1000) & 0xFFFFFFFF
PLACES = {10: place("a"), 11: place("b"), 12: place("b")}


def held(number: int, pod: str, *, gpus: tuple[int, ...] = (0,)) -> Binding:
    binding = bind(number, pod, gpus=gpus)
    return replace(binding, enforcement=Enforcement.LIBRARY, cdi_name=f"kind/part=p{number}")


def use(now: NodeSample, *bindings: Binding) -> FractionUsage:
    return measure(tabulate(*bindings), make_inventory(), now, PLACES, {})


def test_each_is_told_its_own_and_everybodys() -> None:
    """By the number of the sample; who is held by nothing is told nothing, and counts."""
    now = sample(run(10, 20), run(11, 30), run(12, 15), run(99, 5))
    bindings = held(1, "a"), bind(2, "b")
    found = plan_measures(tabulate(*bindings), use(now, *bindings), now)
    assert found == {"p1": (MeasuredUtilization(number=NUMBER, own=20, total=70),)}


@pytest.mark.parametrize(
    ("shares", "own", "total"), [((60, 70, 40), 60, 100), ((100, 0, 0), 100, 100), ((0, 0, 0), 0, 0)]
)
def test_no_gpu_is_busier_than_all_the_time(shares: tuple[int, int, int], own: int, total: int) -> None:
    """Windows of several processes overlap, and add up to more."""
    now = sample(*(run(pid, share) for pid, share in zip((10, 11, 12), shares, strict=True)))
    bindings = held(1, "a"), held(2, "b")
    found = plan_measures(tabulate(*bindings), use(now, *bindings), now)
    assert found["p1"] == (MeasuredUtilization(number=NUMBER, own=own, total=total),)


def test_what_is_not_known_is_not_told() -> None:
    """Neither of a process that does not say, nor by another sample than the use, nor of a binding that has ended."""
    silent = sample(run(10, 20), run(99, None))
    one = held(1, "a")
    assert plan_measures(tabulate(one), use(silent, one), silent) == {}
    now = sample(run(10, 20))
    assert plan_measures(tabulate(one), use(now, one), None) == {}
    assert plan_measures(tabulate(one), use(now, one), sample(run(10, 20), seconds=START + 1)) == {}
    assert plan_measures(tabulate(), use(now, one), now) == {}


def test_of_several_gpus_each_has_its_place() -> None:
    """One of which nothing is known leaves its place empty."""
    process = ProcessSample(pid=10, sm_utilization_percent=40)
    now = NodeSample(time_seconds=START, gpus=(GpuSample(uuid=make_uuid(1), processes=(process,)),))
    one = held(1, "a", gpus=(0, 1))
    found = plan_measures(tabulate(one), use(now, one), now)
    assert found == {"p1": (None, MeasuredUtilization(number=NUMBER, own=40, total=40))}
