"""The GPUs as gpu-manager prints them."""

from msgspec.structs import replace

from nodeagent.components.usage.graph import list_leaves, render_graph
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Inventory, PathKind
from nodeagent.model.journal import FractionTable
from nodeagent.model.telemetry import NodeSample
from tests.support.gpus import make_gpu, make_inventory
from tests.support.samples import make_uuid
from tests.unit.components.usage.builders import GIB, bind, run, sample, tabulate

PAIRS = {(0, 1): PathKind.BRIDGE, (2, 3): PathKind.BRIDGE, (4, 5): PathKind.BRIDGE}


def path(left: int, right: int) -> tuple[PathKind, int]:
    """The example of the fact sheet: three pairs under a switch each, four GPUs under a host bridge; NVLink besides."""
    if (kind := PAIRS.get((left, right))) is not None:
        return kind, 4
    return (PathKind.HOST_BRIDGE, 0) if right < 4 else (PathKind.NODE, 12)


def make_node(count: int = 6) -> Inventory:
    inventory = make_inventory([make_gpu(index) for index in range(count)], path)
    gpus = tuple(replace(gpu, uuid=make_uuid(gpu.index), memory_total_bytes=10 * GIB) for gpu in inventory.gpus)
    uuids = {old.uuid: new.uuid for old, new in zip(inventory.gpus, gpus, strict=True)}
    pairs = tuple(replace(pair, left=uuids[pair.left], right=uuids[pair.right]) for pair in inventory.pairs)
    return replace(inventory, gpus=gpus, pairs=pairs)


def offer(*indices: int, unfit: tuple[int, ...] = ()) -> FractionOffers:
    return FractionOffers(unfit={make_uuid(index): "lost" if index in unfit else "" for index in indices})


def draw(
    inventory: Inventory, table: FractionTable, offers: FractionOffers, now: NodeSample | None = None
) -> list[str]:
    return render_graph(inventory, list_leaves(inventory, table, offers, now)).splitlines()


def test_the_tree_is_that_of_pcie() -> None:
    """NVLink is passed over; a switch stands directly below the node where there is no bridge between."""
    lines = draw(make_node(), FractionTable(), offer(*range(6)))
    assert lines[0] == "ROOT:6"
    assert [line.partition(" (")[0] for line in lines[1:]] == [
        "|---CPU",
        "|   |---PIX",
        "|   |   |---GPU4",
        "|   |   |---GPU5",
        "|   |---PHB",
        "|   |   |---PIX",
        "|   |   |   |---GPU0",
        "|   |   |   |---GPU1",
        "|   |   |---PIX",
        "|   |   |   |---GPU2",
        "|   |   |   |---GPU3",
    ]


def test_leaves_say_what_is_used_and_what_is_left() -> None:
    """Inner nodes sum up what is used, and have nothing to give themselves."""
    now = NodeSample(
        time_seconds=0.0, gpus=(*sample(run(7, 1, 2), run(8, 1, None)).gpus, *sample(run(9), index=1).gpus)
    )
    lines = draw(make_node(2), tabulate(bind(1, cores=30, gib=4)), offer(0, 1), now)
    total = 10 * GIB
    whole = f"usedMemory: {3 * GIB}, totalMemory: {2 * total}, allocatableCores: 0, allocatableMemory: 0"
    first = f"usedMemory: {2 * GIB}, totalMemory: {total}, allocatableCores: 70, allocatableMemory: {6 * GIB}"
    second = f"usedMemory: {GIB}, totalMemory: {total}, allocatableCores: 100, allocatableMemory: {total}"
    assert lines == [
        "ROOT:1",
        f"|---PIX (aval: 1, pids: [7 8 9], {whole})",
        f"|   |---GPU0 (pids: [7 8], {first})",
        f"|   |---GPU1 (pids: [9], {second})",
    ]


def test_the_fuller_of_two_alike_comes_first() -> None:
    """As there: by kind, by what is free, by number."""
    lines = draw(make_node(4), tabulate(bind(1, gpus=(3,))), offer(0, 1, 2, 3))
    assert [line.rpartition("---")[2].partition(" ")[0] for line in lines[1:]] == [
        *("PHB", "PIX", "GPU3", "GPU2", "PIX", "GPU0", "GPU1")
    ]


def test_a_gpu_that_is_not_given_in_parts_has_nothing_to_give() -> None:
    """Nor one that is not fit; more bound than there is leaves nothing, and no less."""
    lines = draw(make_node(3), tabulate(bind(1, cores=120, gib=40)), offer(0, 1, unfit=(1,)))
    assert lines[0] == "ROOT:0"
    leaves = [line for line in lines if "GPU" in line]
    assert len(leaves) == 3
    assert all(line.endswith("allocatableCores: 0, allocatableMemory: 0)") for line in leaves)


def test_one_gpu_hangs_at_the_root_and_none_is_none() -> None:
    """No minor number is no reason to be left out."""
    one = make_node(1)
    one = replace(one, gpus=(replace(one.gpus[0], minor=None),))
    assert [line.partition(" ")[0] for line in draw(one, FractionTable(), offer(0))] == ["ROOT:1", "|---GPU0"]
    assert draw(Inventory(generation=1), FractionTable(), FractionOffers()) == ["ROOT:0"]
