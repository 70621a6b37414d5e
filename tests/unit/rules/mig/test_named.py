"""The layouts that every GPU node has by name."""

import pytest
from msgspec.structs import replace

from nodeagent.model.gpu import Gpu
from nodeagent.rules.mig.layouts import DeviceFilter, LayoutRule
from nodeagent.rules.mig.named import name_layouts
from tests.support.gpus import make_gpu
from tests.support.mig import make_mig_gpu


def test_layouts_are_named_for_the_profiles_that_a_gpu_reports() -> None:
    """Each as often as it fits; a balance of sizes; on and off."""
    layouts = name_layouts([make_mig_gpu(index, "a100-sxm4-40gb") for index in range(8)])
    assert {name: [dict(part.profiles) for part in parts] for name, parts in layouts.items()} == {
        "all-disabled": [{}],
        "all-enabled": [{}],
        "all-1g.5gb": [{"1g.5gb": 7}],
        "all-1g.5gb.me": [{"1g.5gb+me": 1}],
        "all-1g.10gb": [{"1g.10gb": 4}],
        "all-2g.10gb": [{"2g.10gb": 3}],
        "all-3g.20gb": [{"3g.20gb": 2}],
        "all-4g.20gb": [{"4g.20gb": 1}],
        "all-7g.40gb": [{"7g.40gb": 1}],
        "all-balanced": [{"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}],
    }
    assert layouts["all-disabled"] == (LayoutRule(enabled=False),)
    assert all(
        part.enabled and not part.filters for name in layouts if name != "all-disabled" for part in layouts[name]
    )


def test_a_gpu_of_four_slices_has_another_balance() -> None:
    """Of the plain profiles: media and graphics are asked for by name."""
    layouts = name_layouts([make_mig_gpu(0, "rtx-pro-6000-server")])
    assert layouts["all-balanced"] == (LayoutRule(enabled=True, profiles={"1g.24gb": 2, "2g.48gb": 1}),)
    assert layouts["all-1g.24gb.me.all"] == (LayoutRule(enabled=True, profiles={"1g.24gb+me.all": 1}),)
    assert layouts["all-1g.24gb-me"] == (LayoutRule(enabled=True, profiles={"1g.24gb-me": 4}),)


def test_a_node_with_several_models_tells_them_apart() -> None:
    """By the number on the bus: one name may mean another count on each."""
    layouts = name_layouts([make_mig_gpu(0, "a100-sxm4-40gb"), make_mig_gpu(1, "a100-sxm4-80gb"), make_gpu(2)])
    a100_40, a100_80 = DeviceFilter(device_id=0x20B010DE), DeviceFilter(device_id=0x20B210DE)
    assert layouts["all-1g.10gb"] == (
        LayoutRule(enabled=True, filters=(a100_40,), profiles={"1g.10gb": 4}),
        LayoutRule(enabled=True, filters=(a100_80,), profiles={"1g.10gb": 7}),
    )
    assert layouts["all-1g.5gb"] == (LayoutRule(enabled=True, filters=(a100_40,), profiles={"1g.5gb": 7}),)


def other(**changes: object) -> Gpu:
    gpu = make_mig_gpu(0, "a100-sxm4-40gb")
    assert gpu.mig is not None
    profiles = tuple(replace(one, **changes) for one in gpu.mig.profiles)
    return replace(gpu, mig=replace(gpu.mig, profiles=profiles))


@pytest.mark.parametrize("gpus", [[], [make_gpu(0)], [other(name="a shape to come")], [other(slice_count=5)]])
def test_where_profiles_are_unknown_there_are_only_on_and_off(gpus: list[Gpu]) -> None:
    """Old drivers tell no profiles while MIG is off, new ones may tell of shapes that nobody knows yet."""
    assert {"all-disabled", "all-enabled"} <= set(name_layouts(gpus))
    assert "all-balanced" not in name_layouts(gpus)


def test_a_balance_wants_a_profile_of_each_size() -> None:
    """Without one of three slices there is none."""
    gpu = make_mig_gpu(0, "a100-sxm4-40gb")
    assert gpu.mig is not None
    profiles = tuple(one for one in gpu.mig.profiles if one.slice_count != 3)
    assert "all-balanced" not in name_layouts([replace(gpu, mig=replace(gpu.mig, profiles=profiles))])
