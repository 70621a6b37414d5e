"""The layout that GPUs have now, for a file."""

import json

import pytest

from nodeagent.rules.mig.export import export_layout, render_file
from nodeagent.rules.mig.layouts import read_layouts
from nodeagent.rules.mig.partitions import is_met, read_partitions
from nodeagent.rules.mig.wanted import want_of_gpus
from nodeagent_sim.gpus.profile import list_profiles, load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.world import World


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
    """By the number on the bus."""
    parts = export_layout(render_readout(World(load_profile("mixed"))).gpus)
    assert parts
    assert all(part.filters for part in parts)
