"""Link, fragment and share, by the worked examples that people know them from, each with one answer only."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodeagent.model.gpu import Inventory, PathKind
from nodeagent.rules.placement.place import Demand, evaluate_fraction, evaluate_fragment, evaluate_link, place
from nodeagent.rules.placement.space import Space
from tests.support.gpus import make_gpu, make_inventory, make_node
from tests.support.placement import BLOCK, GIB, WHOLE, account, eight, make_sized, six

USED = {3: (40, 8), 6: (70, 4), 7: WHOLE}


def indexes(space: Space, demand: Demand) -> list[int]:
    given = {share.gpu for share in place(space, demand).shares}
    return [room.index for room in space.rooms if room.gpu in given]


def whole(count: int) -> Demand:
    return Demand(gpus=count)


def part(cores: int, gibibytes: int = 0) -> Demand:
    return Demand(cores=cores, memory_bytes=gibibytes * GIB)


@pytest.mark.parametrize(
    ("inventory", "used", "demand", "expected"),
    [
        (six(), {}, whole(3), [0, 1, 2]),
        (six(), {2: WHOLE}, whole(2), [0, 1]),
        (six(), {4: WHOLE}, whole(1), [5]),
        (six(), {}, part(50), [0]),
        (six(), {0: (50, 0)}, part(60), [1]),
        (six(), {0: (50, 0)}, part(30), [0]),
        (eight(), {}, whole(2), [0, 1]),
        (eight(), {}, whole(3), [0, 1, 2]),
        (eight(), {}, whole(4), [0, 1, 2, 3]),
        (eight(), {}, whole(5), [0, 1, 2, 3, 4]),
        (eight(), {}, whole(6), [0, 1, 2, 3, 4, 5]),
        (eight(), {}, whole(8), [0, 1, 2, 3, 4, 5, 6, 7]),
        (eight(), dict.fromkeys((0, 4, 5), WHOLE), whole(1), [6]),
        (eight(), dict.fromkeys((0, 4, 5), WHOLE), whole(2), [6, 7]),
        (eight(), dict.fromkeys((0, 4, 5), WHOLE), whole(3), [1, 2, 3]),
        (eight(), dict.fromkeys((0, 4, 5), WHOLE), whole(4), [1, 2, 3, 6]),
        (eight(), USED, part(20, 4), [6]),
        (eight(), USED, part(30, 30), [0]),
        (eight(), USED, part(50, 4), [3]),
        (eight(), USED, part(60, 25), [0]),
        (eight(), USED, part(70, 4), [0]),
        (eight(), USED, part(90, 4), [0]),
        (eight(), USED, whole(2), [4, 5]),
        (eight(), USED, whole(1), [4]),
        (make_inventory([make_gpu(0)]), {}, whole(1), [0]),
    ],
)
def test_the_worked_examples(
    inventory: Inventory, used: Mapping[int, tuple[int, int]], demand: Demand, expected: list[int]
) -> None:
    """Those of which several answers were right have one here: the fullest surroundings, then the index."""
    assert indexes(account(inventory, used), demand) == expected


def test_several_whole_gpus_out_of_what_is_broken() -> None:
    """The worked example of fragment with two GPUs: the pair that stands alone, not half of the four."""
    space = account(six())
    assert evaluate_fragment(space, 2, space.free).chosen == (4, 5)


def test_a_gpu_in_no_group_goes_before_a_pair_is_broken() -> None:
    node = make_inventory(make_sized(3), lambda _, right: (PathKind.BRIDGE if right < 2 else PathKind.NODE, 0))
    assert indexes(account(node), whole(1)) == [2]


def test_links_are_nearer_than_paths() -> None:
    """Two GPUs with a bridge of links between them go together, whatever the sockets say."""

    def bridged(left: int, right: int) -> tuple[PathKind, int]:
        path = PathKind.NODE if left // 2 == right // 2 else PathKind.SYSTEM
        return path, 4 if (left, right) in {(0, 2), (1, 3)} else 0

    node = make_inventory(make_sized(4), bridged)
    assert indexes(account(node), whole(2)) == [0, 2]
    assert indexes(account(node, {0: WHOLE}), whole(2)) == [1, 3]
    assert indexes(account(make_node(), dict.fromkeys((0, 1, 2), WHOLE)), whole(2)) == [4, 5]


def test_links_that_form_no_hierarchy_are_taken_for_the_nearest_one() -> None:
    """A ring of links over two sockets: those that share both link and socket are nearest."""

    def ring(left: int, right: int) -> tuple[PathKind, int]:
        path = PathKind.NODE if left // 2 == right // 2 else PathKind.SYSTEM
        return path, 2 if (right - left) in {1, 3} else 0

    node = make_inventory(make_sized(4), ring)
    assert indexes(account(node, {0: WHOLE}), whole(2)) == [2, 3]


def test_smaller_memory_and_fewer_processes_go_first() -> None:
    """Of equally full GPUs the one whose memory serves least, then the quietest, as the order says."""
    space = account(eight())
    smaller = replace(space.rooms[5], memory_bytes=16 * GIB)
    space = replace(space, rooms=(*space.rooms[:5], smaller, *space.rooms[6:]))
    assert indexes(space, part(10, 1)) == [5]
    busy = tuple(replace(room, processes=1) if room.index < 3 else room for room in account(eight()).rooms)
    assert indexes(replace(space, rooms=busy), part(10, 1)) == [3]
    less_than_a_block = replace(space.rooms[5], memory_bytes=32 * GIB + BLOCK // 2)
    space = replace(space, rooms=(*space.rooms[:5], less_than_a_block, *space.rooms[6:]))
    assert indexes(space, part(10, 1)) == [0]


def test_a_part_of_each_of_several_gpus() -> None:
    """Each part is on a GPU of its own, the fullest ones first; all of them or none."""
    space = account(eight(), USED)
    found = evaluate_fraction(space, Demand(gpus=2, cores=20, memory_bytes=GIB), 0xFF)
    assert found.chosen == (6, 3)
    assert evaluate_fraction(space, Demand(gpus=8, cores=20, memory_bytes=GIB), 0xFF).chosen == ()


def test_memory_by_percentage_is_of_the_gpu_that_is_chosen() -> None:
    """Half of a small GPU is less than half of a large one."""
    space = account(eight())
    smaller = replace(space.rooms[5], memory_bytes=16 * GIB)
    space = replace(space, rooms=(*space.rooms[:5], smaller, *space.rooms[6:]))
    (share,) = place(space, Demand(cores=0, memory_percent=50)).shares
    assert (share.cores, share.memory_bytes) == (0, 8 * GIB)


def test_a_share_without_cores_needs_a_gpu_that_has_some_left() -> None:
    """Where all compute is promised there is none for those to whom nothing is promised."""
    space = account(make_inventory(make_sized(1)), {0: (99, 1)})
    assert indexes(space, Demand(cores=0, memory_bytes=GIB)) == [0]
    assert indexes(account(make_inventory(make_sized(1)), {0: WHOLE}), Demand(cores=0)) == []


def test_what_is_looked_at_is_told_in_order() -> None:
    """Best first, with the keys by which it was compared, and what spoke against it."""
    space = account(eight(), dict.fromkeys((0, 4, 5), WHOLE))
    chosen, candidates = evaluate_link(space, 2, space.free)
    assert chosen == (6, 7)
    assert [each.gpus for each in candidates] == [(6, 7), (2, 3), (0, 1, 2, 3)]
    assert candidates[0].level == "PIX"
    assert candidates[0].keys == {
        "distance": -50,
        "free GPUs": 2,
        "free blocks": 256,
        "processes": 0,
        "free GPUs around": 2,
        "index": 6,
    }
    (candidate,) = evaluate_link(space, 6, space.free).candidates
    assert candidate.refused == "5 of its GPUs are free, 6 are asked for"
    assert evaluate_link(account(make_inventory(make_sized(1))), 2, 1) == ((), ())
    assert evaluate_fragment(account(make_inventory([])), 1, 0) == ((), ())
    assert evaluate_fragment(account(eight(), dict.fromkeys(range(8), WHOLE)), 1, 0).chosen == ()
