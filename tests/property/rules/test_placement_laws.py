"""Laws of where parts of GPUs go, for any node and any sequence of coming and going."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.model.gpu import Inventory, PathKind
from nodeagent.rules.placement.place import Demand, Placement, place
from nodeagent.rules.placement.space import CORES, plan_space
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.placement import BLOCK, GIB

PATHS = (PathKind.BRIDGE, PathKind.BRIDGES, PathKind.HOST_BRIDGE, PathKind.NODE, PathKind.SYSTEM)
demands = st.builds(Demand, gpus=st.integers(1, 5)) | st.builds(
    Demand,
    gpus=st.sampled_from((1, 1, 1, 2)),
    cores=st.integers(0, CORES - 1),
    memory_bytes=st.integers(0, 40).map(lambda gibibytes: gibibytes * GIB),
    memory_percent=st.none() | st.none() | st.integers(1, 100),
)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Up to ten GPUs of two sizes, joined in any way, by paths and links."""
    count = draw(st.integers(1, 10))
    sizes = draw(st.lists(st.sampled_from((32, 32, 16)), min_size=count, max_size=count))
    gpus = [replace(make_gpu(index), memory_total_bytes=size * GIB) for index, size in enumerate(sizes)]
    chance = Random(draw(st.integers(0, 1000)))
    table = {
        (left, right): (chance.choice(PATHS), chance.choice((0, 0, 4))) for left in range(10) for right in range(10)
    }
    return make_inventory(gpus, lambda left, right: table[left, right])


@given(inventories(), st.lists(st.tuples(demands, st.integers(0, 3)), max_size=25), st.integers(0, 2**32))
def test_no_gpu_is_ever_given_more_than_once(inventory: Inventory, story: list[tuple[Demand, int]], seed: int) -> None:
    """Whoever comes and goes: what is given fits, who has a GPU alone is alone, and giving back undoes giving."""
    empty = space = plan_space(inventory, BLOCK, withheld={}, users_max=4)
    living: list[Placement] = []
    chance = Random(seed)
    for demand, going in story:
        for _ in range(min(going, len(living))):
            space = space.release(living.pop(chance.randrange(len(living))).shares)
        placement = place(space, demand)
        assert placement == place(space, demand)
        after = space.occupy(placement.shares)
        assert after.release(placement.shares) == space
        assert not any(room.is_overcommitted for room in after.rooms)
        for before, room in zip(space.rooms, after.rooms, strict=True):
            if placement.demand.is_exclusive and room != before:
                assert (before.users, room.users, room.free_cores, room.free_bytes) == (0, 1, 0, 0)
            assert room.users <= 4
        if placement.shares:
            assert len({share.gpu for share in placement.shares}) == demand.gpus
            living.append(placement)
        space = after
    for placement in living:
        space = space.release(placement.shares)
    assert space == empty


@given(inventories(), st.lists(demands, max_size=6), demands)
def test_room_is_found_where_there_is_any(inventory: Inventory, earlier: list[Demand], demand: Demand) -> None:
    """One demand fails only where too few GPUs have room, each looked at alone."""
    space = plan_space(inventory, BLOCK, withheld={})
    for each in earlier:
        space = space.occupy(place(space, each).shares)
    able = 0
    for room in space.rooms:
        share = demand.share_of(room)
        alone = room.users == 0
        fits = 0 < room.free_cores >= share.cores and room.free_bytes >= share.memory_bytes
        able += alone if demand.is_exclusive else fits
    assert bool(place(space, demand).shares) == (able >= demand.gpus)


@given(inventories(), st.permutations(range(10)), st.lists(demands, max_size=5), demands)
def test_other_names_for_equal_gpus_change_only_names(
    inventory: Inventory, names: list[int], earlier: list[Demand], demand: Demand
) -> None:
    """UUIDs in another order: the same places in the tree are chosen, whatever they are called."""
    renamed = {gpu.uuid: gpu_uuid(100 + names[gpu.index]) for gpu in inventory.gpus}
    other = replace(
        inventory,
        gpus=tuple(reversed([replace(gpu, uuid=renamed[gpu.uuid]) for gpu in inventory.gpus])),
        pairs=tuple(replace(pair, left=renamed[pair.left], right=renamed[pair.right]) for pair in inventory.pairs),
    )
    one, two = plan_space(inventory, BLOCK, withheld={}), plan_space(other, BLOCK, withheld={})
    for each in (*earlier, demand):
        here, there = place(one, each), place(two, each)
        assert [replace(share, gpu=renamed[share.gpu]) for share in here.shares] == list(there.shares)
        assert here.candidates == there.candidates
        one, two = one.occupy(here.shares), two.occupy(there.shares)


@given(st.permutations(range(8)), demands)
def test_other_places_for_equal_gpus_change_only_names(places: list[int], demand: Demand) -> None:
    """Equal GPUs in other places of a regular board: what is chosen was compared by the same, all but the index."""

    def board(order: list[int]) -> Inventory:
        gpus = [replace(make_gpu(index), memory_total_bytes=32 * GIB) for index in range(8)]

        def path(left: int, right: int) -> tuple[PathKind, int]:
            one, two = order[left], order[right]
            return next((PATHS[level] for level, near in enumerate((2, 4)) if one // near == two // near), PATHS[4]), 0

        return make_inventory(gpus, path)

    here, there = (place(plan_space(board(order), BLOCK, withheld={}), demand) for order in (list(range(8)), places))
    assert len(here.shares) == len(there.shares)
    assert _best(here) == _best(there)


def _best(placement: Placement) -> dict[str, int] | None:
    """The keys of the first candidate that could serve, without the name."""
    keys = next((each.keys for each in placement.candidates if not each.refused), None)
    return keys and {key: value for key, value in keys.items() if key != "index"}


@given(inventories(), demands)
def test_the_scheduler_is_obeyed_where_that_fits(inventory: Inventory, demand: Demand) -> None:
    """On an empty node every choice of as many GPUs as are asked for can be, where their memory is enough."""
    space = plan_space(inventory, BLOCK, withheld={})
    request = [room.gpu for room in space.rooms if room.memory_bytes >= demand.share_of(room).memory_bytes]
    request = request[-demand.gpus :]
    if len(request) == demand.gpus:
        assert [share.gpu for share in place(space, demand, request=request).shares] == request
