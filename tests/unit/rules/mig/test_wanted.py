"""What a layout wants of each GPU."""

from nodeagent.rules.mig.layouts import DeviceFilter, LayoutRule
from nodeagent.rules.mig.wanted import Wanted, want_of_gpus
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.mig import make_mig_gpu

GPUS = [make_mig_gpu(index, "a100-sxm4-40gb") for index in reversed(range(3))]
ALL, SEVEN = LayoutRule(enabled=True), {"1g.5gb": 7}


def test_the_last_part_that_covers_a_gpu_counts() -> None:
    """Each GPU by its index, in whatever order they were listed."""
    want = want_of_gpus((ALL, LayoutRule(enabled=True, indexes=(1,), profiles=SEVEN)), GPUS)
    assert dict(want.gpus) == {
        gpu_uuid(0): Wanted(enabled=True),
        gpu_uuid(1): Wanted(enabled=True, profiles=SEVEN),
        gpu_uuid(2): Wanted(enabled=True),
    }
    assert (want.uncovered, want.problems) == ((), ())


def test_a_gpu_that_cannot_be_seen_moves_no_other_to_its_place() -> None:
    """The driver numbers those that hang as well: another one is never cut in its stead."""
    layout = (LayoutRule(enabled=True, indexes=(0, 2), profiles=SEVEN),)
    seen = [gpu for gpu in GPUS if gpu.index != 0]
    want = want_of_gpus(layout, seen)
    assert dict(want.gpus) == {gpu_uuid(2): Wanted(enabled=True, profiles=SEVEN)}
    assert (want.uncovered, want.problems) == ((gpu_uuid(1),), ())


def test_a_gpu_of_which_nothing_is_said_stays_as_it_is() -> None:
    """It is told, because an assertion of the layout fails over it."""
    want = want_of_gpus((LayoutRule(enabled=False, indexes=(0, 1)),), GPUS)
    assert (set(want.gpus), want.uncovered) == ({gpu_uuid(0), gpu_uuid(1)}, (gpu_uuid(2),))


def test_a_layout_for_other_boards_alone_cannot_be_had() -> None:
    """Whoever asked for the layout would take silence for success; a node without MIG has nothing to miss."""
    elsewhere = LayoutRule(enabled=True, filters=(DeviceFilter(device_id=1),), profiles=SEVEN)
    model = "3 x NVIDIA A100-SXM4-40GB"
    assert want_of_gpus((elsewhere,), GPUS).problems == (f"the layout is for other boards than this node's: {model}",)
    assert want_of_gpus((elsewhere,), [make_gpu(0)]).problems == ()
    assert want_of_gpus((elsewhere, LayoutRule(enabled=True, indexes=(0,))), GPUS).problems == ()


def test_a_gpu_without_mig_is_refused_only_where_it_is_named() -> None:
    """What is meant for all leaves it as it is, and so does MIG off."""
    plain = make_gpu(0)
    assert want_of_gpus((ALL,), [plain]) == want_of_gpus((LayoutRule(enabled=False, indexes=(0,)),), [plain])
    told = ("GPU 0 (NVIDIA H100 80GB HBM3) knows no MIG: leave it out of the layout",)
    assert want_of_gpus((LayoutRule(enabled=True, indexes=(0,)),), [plain]).problems == told
    assert want_of_gpus((LayoutRule(enabled=True, selectors=("0",)),), [plain]).problems == told


def test_a_gpu_that_is_not_there_is_told() -> None:
    """Unless a filter says that other nodes are meant."""
    absent = LayoutRule(enabled=True, indexes=(2, 3))
    assert want_of_gpus((absent,), GPUS).problems == ("there is no GPU 3 on this node, the last one is 2",)
    elsewhere = LayoutRule(enabled=True, indexes=(2, 3), filters=(DeviceFilter(device_id=1),))
    assert want_of_gpus((LayoutRule(enabled=False), elsewhere), GPUS).problems == ()


def test_a_wish_is_told_in_words() -> None:
    """As a plan and a refusal show it."""
    assert Wanted(enabled=False).describe() == "MIG off"
    assert Wanted(enabled=True).describe() == "MIG on, not cut"
    assert Wanted(enabled=True, profiles={"1g.5gb": 2, "3g.20gb": 1}).describe() == "2 x 1g.5gb + 1 x 3g.20gb"
