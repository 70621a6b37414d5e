"""The simulation and the road through NVML tell the same of the same node: neither can drift from the other."""

import time
from typing import Any

import msgspec
import pynvml
import pytest
from msgspec.structs import replace

from nodeagent.edge.nvml.agent.topology import list_pairs, list_switches
from nodeagent.edge.nvml.worker.inventory import read_gpu
from nodeagent.edge.nvml.worker.query import Query
from nodeagent.edge.nvml.worker.sample import Sampler
from nodeagent.model.gpu import Gpu
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.values import Value
from nodeagent_sim.gpus.profile import list_profiles, load_profile
from nodeagent_sim.gpus.readout import render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from tests.component.edge_nvml.conftest import InProcess, Load


def read_gpus(loaded: InProcess) -> list[Gpu]:
    """Every GPU through NVML, in the model's words."""
    found = [read_gpu(Query(loaded.handle(index), {}), index, {}) for index in range(pynvml.nvmlDeviceGetCount())]
    return [msgspec.json.decode(msgspec.json.encode(gpu), type=Gpu) for gpu in found]


def read_levels(loaded: InProcess, gpus: list[Gpu]) -> dict[frozenset[str], int | None]:
    """NVML's level for each pair."""
    return {
        frozenset({left.pci.address, right.pci.address}): pynvml.nvmlDeviceGetTopologyCommonAncestor(
            loaded.handle(left.index), loaded.handle(right.index)
        )
        for left in gpus
        for right in gpus
        if left.index < right.index
    }


def without_what_nvml_cannot_tell(gpu: Gpu) -> Gpu:
    """NVML tells the far end of an active link only, and placements only of a GPU in MIG mode."""
    links = tuple(link if link.active else replace(link, remote=None, remote_is_switch=False) for link in gpu.nvlinks)
    mig = gpu.mig
    if mig is not None:
        profiles = sorted(
            (profile if mig.enabled else replace(profile, placements=(), placement_size=1) for profile in mig.profiles),
            key=lambda profile: profile.profile_id,
        )
        mig = replace(mig, profiles=tuple(profiles))
    return replace(gpu, nvlinks=links, mig=mig)


@pytest.mark.parametrize("profile", list_profiles())
def test_inventory_is_the_simulated_one(load_in_process: Load, profile: str) -> None:
    """Every GPU, MIG device, profile, link, pair and switch of every board comes through NVML unchanged."""
    readout = render_readout(World(load_profile(profile)))
    loaded = load_in_process(profile)
    gpus = read_gpus(loaded)
    for gpu, wanted in zip(gpus, readout.gpus, strict=True):
        assert compare(without_what_nvml_cannot_tell(gpu), without_what_nvml_cannot_tell(wanted)) == {}
    assert list_pairs(gpus, read_levels(loaded, gpus)) == readout.pairs
    assert list_switches(gpus) == readout.switches


@pytest.mark.long
@pytest.mark.parametrize("profile", list_profiles())
def test_a_sample_is_the_simulated_one(load_in_process: Load, profile: str) -> None:
    """Every number of a busy node comes through NVML unchanged."""
    world = World(load_profile(profile), seed=3)
    world.advance(600.0)
    wanted = render_sample(world, 1000.0)
    loaded = load_in_process(profile)
    loaded.fake.live_as(wanted)
    samplers = [Sampler(loaded.handle(index)) for index in range(len(wanted.gpus))]
    for sampler in samplers:
        sampler.read()
    time.sleep(0.12)  # what the library wants between two samples of the counters
    loaded.fake.live_as(replace(wanted, time_seconds=1001.0))
    for sampler, one in zip(samplers, wanted.gpus, strict=True):
        assert compare(read_sample(sampler, one.uuid), one) == {}
    for sampler in samplers:
        sampler.close()


def read_sample(sampler: Sampler, uuid: str) -> GpuSample:
    """One more sample, in the model's words."""
    sample, _ = sampler.read()
    return msgspec.json.decode(msgspec.json.encode({**sample, "uuid": uuid}), type=GpuSample)


def compare(found: Value, wanted: Value) -> dict[str, tuple[Any, Any]]:
    left, right = flatten(found), flatten(wanted)
    return {path: (left.get(path), right.get(path)) for path in {*left, *right} if left.get(path) != right.get(path)}


def flatten(sample: Value) -> dict[str, Any]:
    """All numbers by path, ratios rounded to what a percentage in a double keeps."""
    numbers: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{path}.{name}", inner)
        elif isinstance(value, list):
            for place, inner in enumerate(value):
                walk(f"{path}.{place}", inner)
        elif isinstance(value, float):
            numbers[path] = pytest.approx(value, rel=1e-6)
        elif value is not None:
            numbers[path] = value

    walk("", msgspec.to_builtins(sample))
    return numbers
