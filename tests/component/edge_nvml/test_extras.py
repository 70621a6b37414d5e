"""Readings beside the ordinary sample, through pynvml from the fake driver, and from the simulation."""

import pytest

from nodeagent.components.exporter.catalogue.all_fields import list_extras, list_readings
from nodeagent.edge.nvml.worker import extras
from nodeagent.edge.nvml.worker.extras import ExtraReader
from nodeagent.edge.nvml.worker.query import Query
from nodeagent.edge.nvml.worker.sample import Sampler
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from tests.component.edge_nvml.conftest import Load

NVLINK_5 = 5
WANTED = (
    "call/max_sm_clock",
    "call/power_limit_min",
    "call/shutdown_celsius",
    "field/138/2",
    "field/138/17",
    "field/186/0",
    "link_error/2/1",
)


def test_every_reading_of_the_catalogue_is_understood() -> None:
    """No field of the catalogue names a reading that the worker does not know."""
    kinds = {name.partition("/")[0] for name in list_readings(list_extras())}
    assert kinds == {"call", "field", "gpm", "link_error", "memory_error"}
    calls = {name.partition("/")[2] for name in list_readings(list_extras()) if name.startswith("call/")}
    assert calls == set(extras._CALLS)


def test_the_driver_is_asked_for_what_is_wanted_and_no_more(load_in_process: Load) -> None:
    """What the GPU has comes with the sample, what it has not is absent, and without a wish nothing is asked."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    plain, calls = sampler.read()
    assert "extras" not in plain
    sample, more = sampler.read(extras=(*WANTED, "call/unheard_of", "field/138/40", "gpm/9"))
    sampler.close()
    found = sample["extras"]
    model = World(load_profile("dgx-h100"), node_name="n", seed=1).listed[0].seat.model
    assert found["call/max_sm_clock"] == model.clocks.sm_mhz
    assert found["call/power_limit_min"] == model.power.minimum_watts * 1000
    assert found["call/shutdown_celsius"] == model.thermal.shutdown_celsius
    assert {"field/138/2", "field/138/17"} <= found.keys()
    assert not {"call/unheard_of", "field/138/40"} & found.keys()
    assert more <= calls + 8


def test_extras_begin_anew_with_another_wish_or_another_layout(load_in_process: Load) -> None:
    """Whatever was learnt about the GPU is forgotten together; nothing that the library lent is kept."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    first, _ = sampler.read(extras=("call/max_sm_clock", "gpm/9"))
    sampler.forget()
    again, _ = sampler.read(extras=("call/max_sm_clock", "gpm/9"))
    other, _ = sampler.read(extras=("call/max_memory_clock",))
    sampler.close()
    assert first["extras"]["call/max_sm_clock"] == again["extras"]["call/max_sm_clock"]
    assert set(other["extras"]) == {"call/max_memory_clock"}


def test_a_gpu_of_its_own_kind_has_no_links_to_read(load_in_process: Load) -> None:
    """A T4 answers nothing for links and hardware counters, and is not marked unreadable for it."""
    loaded = load_in_process("t4")
    query = Query(loaded.handle(0), {})
    reader = ExtraReader(("field/138/0", "field/202/4294967295", "gpm/9", "memory_error/0/0/7", "call/max_sm_clock"))
    found = reader.read(query, can_profile=False)
    reader.close()
    assert "call/max_sm_clock" in found
    assert not {"field/138/0", "field/202/4294967295", "gpm/9"} & found.keys()


@pytest.mark.parametrize("profile", ["dgx-h100", "dgx-b200", "t4", "a100-80gb-mig"])
def test_a_simulated_gpu_answers_in_the_same_words(profile: str) -> None:
    """Wishes are met as far as the model goes; the links' parts make up the whole; without a wish there is nothing."""
    world = World(load_profile(profile), node_name="n", seed=1)
    world.advance(60.0)
    assert render_sample(world, 0.0).gpus[0].extras == {}
    sample = render_sample(world, 0.0, extras=list_readings(list_extras())).gpus[0]
    model = world.listed[0].seat.model
    assert sample.extras["call/max_sm_clock"] == model.clocks.sm_mhz
    assert sample.extras["field/186/0"] == sample.power_milliwatts
    links = [sample.extras[f"field/138/{link}"] for link in range(18) if f"field/138/{link}" in sample.extras]
    assert len(links) == (model.nvlink.links if model.nvlink is not None else 0)
    if sample.nvlink_transmit_kib is not None:
        assert abs(sum(links) - sample.nvlink_transmit_kib) < len(links)
    assert ("field/202/4294967295" in sample.extras) == (model.nvlink is not None and model.nvlink.version >= NVLINK_5)
