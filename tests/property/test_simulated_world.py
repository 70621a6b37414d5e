"""Laws of the simulated node that hold for every profile, seed and moment."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.gpu import Gpu
from nodeagent.model.telemetry import GpuSample
from nodeagent_sim.gpus.profile import list_profiles, load_profile
from nodeagent_sim.gpus.readout import render_evidence, render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World
from tests.support.examples import examples

PROFILES = {name: load_profile(name) for name in list_profiles()}
MOMENTS = st.lists(st.floats(0, 3000), min_size=2, max_size=6).map(sorted)
COUNTERS = (
    "energy_millijoules",
    "power_violation_nanoseconds",
    "thermal_violation_nanoseconds",
    "pcie_replay_count",
    "pcie_transmit_bytes",
    "pcie_receive_bytes",
    "nvlink_transmit_kib",
    "nvlink_receive_kib",
    "ecc_corrected_volatile",
    "ecc_corrected_aggregate",
)
PERCENTAGES = (
    "gpu_utilization_percent",
    "memory_utilization_percent",
    "encoder_utilization_percent",
    "decoder_utilization_percent",
)
RATIOS = ("graphics_engine_active", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp32_active")


def check_sample(sample: GpuSample, world: World, index: int) -> None:
    model = world.gpus[index].seat.model
    for name in PERCENTAGES:
        value = getattr(sample, name)
        assert value is None or 0 <= value <= 100
    assert sample.memory_total_bytes == model.total_bytes
    assert sample.memory_used_bytes is not None
    assert sample.memory_free_bytes is not None
    assert sample.memory_used_bytes >= 0 <= sample.memory_free_bytes
    assert sample.gpu_temperature_celsius is not None
    assert 15 < sample.gpu_temperature_celsius < model.thermal.shutdown_celsius
    assert sample.power_milliwatts is not None
    assert 0 < sample.power_milliwatts <= model.power.limit_watts * 1000
    assert sample.sm_clock_mhz is not None
    assert model.clocks.sm_idle_mhz <= sample.sm_clock_mhz <= model.clocks.sm_mhz
    if sample.profiling is not None:
        assert all(0 <= getattr(sample.profiling, name) <= 1 for name in RATIOS)
    for mig in sample.mig:
        assert mig.memory_used_bytes is not None
        assert mig.memory_total_bytes is not None
        assert 0 <= mig.memory_used_bytes <= mig.memory_total_bytes


@settings(max_examples=examples(60), deadline=None)
@given(name=st.sampled_from(sorted(PROFILES)), seed=st.integers(0, 2**32), moments=MOMENTS)
def test_every_moment_is_plausible(name: str, seed: int, moments: list[float]) -> None:
    """Readings stay within what the hardware can do, counters never fall."""
    world = World(PROFILES[name], seed=seed)
    before: tuple[GpuSample, ...] = ()
    for moment in moments:
        world.advance(moment)
        now = render_sample(world, moment).gpus
        for index, sample in enumerate(now):
            check_sample(sample, world, index)
        for older, newer in zip(before, now, strict=False):
            for counter in COUNTERS:
                past, present = getattr(older, counter), getattr(newer, counter)
                assert (past is None) is (present is None)
                assert past is None or past <= present
        before = now


def check_gpu(gpu: Gpu) -> None:
    assert gpu.uuid.startswith("GPU-")
    assert gpu.lost == ""
    assert gpu.unreadable == ()
    assert gpu.minor == gpu.index
    assert len(gpu.mig_devices) <= (gpu.mig.devices_max if gpu.mig else 0)
    slots: set[int] = set()
    for device in gpu.mig_devices:
        assert device.placement_start is not None
        assert device.placement_size is not None
        own = set(range(device.placement_start, device.placement_start + device.placement_size))
        assert not own & slots
        slots |= own
    assert sum(device.attributes.multiprocessor_count for device in gpu.mig_devices) <= (gpu.multiprocessor_count or 0)


@given(name=st.sampled_from(sorted(PROFILES)), node=st.text(max_size=20))
@settings(max_examples=examples(40), deadline=None)
def test_every_readout_is_consistent(name: str, node: str) -> None:
    """Inventory, sample and evidence speak of the same devices, whose names are unique and stable."""
    world = World(PROFILES[name], node_name=node)
    readout = render_readout(world)
    assert readout == render_readout(World(PROFILES[name], node_name=node))
    for gpu in readout.gpus:
        check_gpu(gpu)
    uuids = [uuid for gpu in readout.gpus for uuid in (gpu.uuid, *(device.uuid for device in gpu.mig_devices))]
    assert len(set(uuids)) == len(uuids)
    sample = render_sample(world, 0.0)
    assert [gpu.uuid for gpu in sample.gpus] == [gpu.uuid for gpu in readout.gpus]
    assert [mig.uuid for gpu in sample.gpus for mig in gpu.mig] == [
        device.uuid for gpu in readout.gpus for device in gpu.mig_devices
    ]
    evidence = render_evidence(world)
    assert [function.address for function in evidence.pci_functions] == [gpu.pci.address for gpu in readout.gpus]
    assert evidence.library is not None
    assert evidence.library.gpu_count == len(readout.gpus)
    assert readout.missing == ()
