"""A plan as people read it."""

import json

import pytest
from msgspec.structs import replace

from nodeagent.model.mig import GpuPartitions
from nodeagent.rules.mig.export import export_layout, render_file
from nodeagent.rules.mig.layouts import read_layouts
from nodeagent.rules.mig.partitions import is_met, read_partitions
from nodeagent.rules.mig.show import GpuPlan, plan_gpu
from nodeagent.rules.mig.wanted import Wanted, want_of_gpus
from nodeagent_sim.gpus.profile import list_profiles, load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.world import World
from tests.support.gpus import make_gpu
from tests.support.mig import cut, partitions_of, request

H100 = "h100-sxm5-80gb"
GPU = make_gpu(2)


def plan(wanted: Wanted, there: GpuPartitions) -> GpuPlan:
    return plan_gpu(GPU, wanted, there)


def test_a_plan_reads_like_a_diff() -> None:
    shown = plan(request("3g.40gb 1c.2g.20gb 1g.10gb"), cut(H100, "3g.40gb 2g.20gb 2g.20gb"))
    assert shown.changes
    assert shown.lines == (
        "- 2g.20gb at slot 2",
        "  3g.40gb at slot 4",
        "  2g.20gb at slot 0",
        "-   2c in it",
        "+   1c in it",
        "+ 1g.10gb at slot 2",
    )
    assert plan(request("1c.3g.40gb 2c.3g.40gb"), partitions_of(H100)).lines == ("+ 3g.40gb at slot 0 with 2c, 1c",)


def test_a_switch_of_the_mode_is_a_change() -> None:
    assert plan(Wanted(enabled=False), cut(H100, "7g.80gb")).lines == ("- MIG on", "+ MIG off", "- 7g.80gb at slot 0")
    off = partitions_of(H100, enabled=False)
    assert plan(request("7g.80gb"), off).lines == ("- MIG off", "+ MIG on", "+ 7g.80gb at slot 0")
    silent = plan(request("7g.80gb"), replace(off, profiles=()))
    assert silent.lines == ("- MIG off", "+ MIG on", "+ what is wished, once the driver tells its profiles")


def test_a_gpu_that_is_right_has_no_lines() -> None:
    """And one that cannot be so has the reason."""
    same = plan(request("7g.80gb"), cut(H100, "7g.80gb"))
    assert (same.index, same.lines, same.changes, same.refusal) == (2, (), False, "")
    never = plan(request("7g.80gb 7g.80gb"), cut(H100, "7g.80gb"))
    assert (never.lines, never.changes) == ((), False)
    assert never.refusal == "7g.80gb does not fit 2 times: at most 1 of it can be on one GPU"


def test_what_has_no_name_goes_by_its_number() -> None:
    """Profiles of a driver to come, places that are not told."""
    there = cut(H100, "7g.80gb")
    odd = replace(there, instances=(replace(there.instances[0], profile_id=77, start=None),))
    assert plan(Wanted(enabled=True), odd).lines == ("- profile 77",)
    assert plan(Wanted(enabled=False), odd).lines[-1] == "- profile 77"


@pytest.mark.parametrize("profile", list_profiles())
def test_what_is_exported_is_what_there_is(profile: str) -> None:
    """Read again, it asks for exactly that of every GPU that knows MIG."""
    gpus = render_readout(World(load_profile(profile))).gpus
    read = read_layouts(json.dumps(render_file("current", export_layout(gpus))), "f")
    assert read.problems == ()
    want = want_of_gpus(read.layouts["current"], gpus)
    capable = {gpu.uuid for gpu in gpus if gpu.mig is not None}
    assert (set(want.gpus), want.problems) == (capable, ())
    assert all(is_met(want.gpus[gpu.uuid], read_partitions(gpu)) for gpu in gpus if gpu.uuid in capable)


def test_gpus_that_are_cut_alike_are_one_entry() -> None:
    """`all` where that is every GPU of the node."""
    world = World(load_profile("a100-80gb-mig"))
    assert render_file("now", export_layout(render_readout(world).gpus)) == {
        "version": "v1",
        "mig-configs": {
            "now": [
                {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
                {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}},
                {"devices": [2], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
                {"devices": [3], "mig-enabled": False, "mig-devices": {}},
            ]
        },
    }
    (whole,) = export_layout(render_readout(World(load_profile("dgx-h100"))).gpus)
    assert (whole.indexes, whole.enabled, whole.filters) == (None, False, ())


def test_models_are_told_apart_where_there_are_several() -> None:
    parts = export_layout(render_readout(World(load_profile("mixed"))).gpus)
    assert parts
    assert all(part.filters for part in parts)
