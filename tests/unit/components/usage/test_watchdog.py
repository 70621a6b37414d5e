"""Which process ends because its container has more than its part."""

import pytest

from nodeagent.components.usage.excess import find_excesses
from nodeagent.components.usage.measure import measure
from nodeagent.model.journal import Binding
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import NodeSample
from tests.support.samples import make_inventory, make_uuid
from tests.unit.components.usage.builders import GIB, bind, place, run, sample, tabulate

PLACES = {10: place("a"), 11: place("a"), 12: place("b")}
ONE = (1, make_uuid(0))
BINDINGS = (bind(1, "a", gib=8), bind(2, "b", gib=8))


def find(
    now: NodeSample, *seen: tuple[int, str], bindings: tuple[Binding, ...] = BINDINGS
) -> tuple[list[tuple[int, int, str, int]], set[tuple[int, str]]]:
    usage = measure(tabulate(*bindings), make_inventory(), now, PLACES, {})
    excesses, over = find_excesses(usage, now, PLACES, frozenset(seen))  # type: ignore[arg-type]
    return [(one.use.number, one.pid, one.pod_uid, one.memory_bytes) for one in excesses], set(over)


def test_the_largest_ends_once_it_was_seen_twice() -> None:
    """The others of the container go on, and so does everybody who keeps to their part."""
    now = sample(run(10, gib=3), run(11, gib=6), run(12, gib=8))
    assert find(now) == ([], {ONE})
    assert find(now, ONE) == ([(1, 11, "u-a", 6 * GIB)], {ONE})


@pytest.mark.parametrize("gib", [8, None])
def test_who_keeps_to_its_part_or_does_not_say_is_left_alone(gib: int | None) -> None:
    assert find(sample(run(10, gib=gib)), ONE) == ([], set())


def test_a_process_that_is_not_seen_to_be_a_pods_is_never_ended() -> None:
    """Alone on its GPU it counts as its container's, but it may be anybody's."""
    alone = (bind(1, "a", gib=8),)
    assert find(sample(run(99, gib=9)), ONE, bindings=alone) == ([], {ONE})
    PLACES[98] = ProcessPlace()
    try:
        assert find(sample(run(98, gib=9)), ONE, bindings=alone) == ([], set())
    finally:
        del PLACES[98]
