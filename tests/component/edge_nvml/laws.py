"""What must hold of any NVIDIA GPU, real or fake: the same body runs on both, so that the fake stays honest."""

from contextlib import aclosing

import anyio

from nodeagent.edge.nvml.agent.client import NvmlGpus
from nodeagent.model.errors import DriverReleased, DriverUnavailable
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import parse_pci_address
from nodeagent.model.ports import GpuSource
from nodeagent.model.telemetry import GpuSample


async def the_answer_is_whole(gpus: NvmlGpus) -> None:
    """NVML says who it is and how many GPUs it lists."""
    answer = await gpus.read_answer()
    assert (answer.code, answer.message) == (0, "")
    assert answer.driver_version
    assert answer.version.endswith(answer.driver_version)
    assert answer.cuda_version is not None
    assert answer.gpu_count >= 1
    assert answer.library_path


async def every_gpu_has_an_identity(gpus: GpuSource) -> None:
    """UUIDs and addresses are of the right form and belong to one GPU each; enumerating twice finds the same."""
    readout = await gpus.read_inventory()
    assert readout.gpus
    assert (
        len({gpu.uuid for gpu in readout.gpus}) == len({gpu.pci.address for gpu in readout.gpus}) == len(readout.gpus)
    )
    for gpu in readout.gpus:
        _check_gpu(gpu)
    assert len(readout.pairs) == len(readout.gpus) * (len(readout.gpus) - 1) // 2
    assert (await gpus.read_inventory()) == readout


def _check_gpu(gpu: Gpu) -> None:
    assert gpu.uuid.startswith("GPU-")
    assert parse_pci_address(gpu.pci.address) == gpu.pci.address
    assert gpu.pci.device_id & 0xFFFF == 0x10DE
    assert gpu.name
    assert gpu.lost == ""
    assert gpu.unreadable == ()
    assert gpu.memory_total_bytes > 0
    assert gpu.compute_capability is not None
    assert gpu.architecture
    assert gpu.minor is not None
    assert gpu.inforom_valid is not False
    for device in gpu.mig_devices:
        assert device.uuid.startswith("MIG-")
        assert device.parent == gpu.uuid


async def every_sample_is_plausible(gpus: GpuSource) -> None:
    """Numbers are in their ranges, counters do not go back, and every GPU of the inventory has its sample."""
    known = {gpu.uuid for gpu in (await gpus.read_inventory()).gpus}
    before = await gpus.read_sample()
    await anyio.sleep(0.15)
    after = await gpus.read_sample()
    assert {one.uuid for one in after.gpus} == known
    assert after.call_count <= 60 * len(after.gpus)
    for earlier, later in zip(before.gpus, after.gpus, strict=True):
        _check_sample(later)
        _check_counters(earlier, later)


def _check_sample(sample: GpuSample) -> None:
    assert sample.lost == ""
    assert sample.unreadable == ()
    assert sample.gpu_temperature_celsius is not None
    assert 0 < sample.gpu_temperature_celsius < 120
    assert sample.memory_total_bytes is not None
    assert 0 <= (sample.memory_used_bytes or 0) <= sample.memory_total_bytes
    assert 0 <= (sample.gpu_utilization_percent or 0) <= 100
    assert (sample.nvlink_speed_min_mbps or 0) <= (sample.nvlink_speed_max_mbps or 0)
    assert 0 <= (sample.nvlink_effective_ber or 0) < 1e-3
    assert not sample.sram_threshold_exceeded
    assert not sample.memory_unrepairable
    if sample.profiling is not None:
        assert 0 <= (sample.profiling.sm_active or 0) <= 1.01


def _check_counters(earlier: GpuSample, later: GpuSample) -> None:
    for name in (
        "energy_millijoules",
        "pcie_replay_count",
        "pcie_fatal_error_count",
        "ecc_corrected_aggregate",
        "nvlink_transmit_kib",
        "nvlink_recovery_failed_count",
        "aer_fatal_count",
    ):
        first, second = getattr(earlier, name), getattr(later, name)
        assert (first is None) == (second is None)
        assert first is None or first <= second


async def what_asking_costs_is_told(gpus: NvmlGpus) -> None:
    """Calls by function, none of which takes longer on average than a sample may."""
    sample = await gpus.read_sample()
    assert sample.access is not None
    assert sample.access.left_behind == ()
    assert sum(one.count for one in sample.access.calls) >= sample.call_count
    assert all(one.seconds / one.count < 1 for one in sample.access.calls)


async def events_can_be_watched(gpus: NvmlGpus) -> None:
    """Registration works, and a healthy GPU reports nothing while it is sampled."""
    async with aclosing(gpus.events()) as events:
        with anyio.move_on_after(0.5) as waiting:
            try:
                event = await anext(events)
            except DriverUnavailable as error:
                raise AssertionError(f"no GPU can be watched: {error}") from error
            raise AssertionError(f"an event out of nowhere: {event}")
        assert waiting.cancelled_caught


async def release_gives_everything_back(gpus: GpuSource) -> None:
    """Released, nothing is answered; resumed, the same GPUs are there."""
    known = [gpu.uuid for gpu in (await gpus.read_inventory()).gpus]
    await gpus.release("a test")
    try:
        await gpus.read_sample()
    except DriverReleased:
        await gpus.resume()
    else:
        raise AssertionError("a released driver was sampled")
    assert [gpu.uuid for gpu in (await gpus.read_inventory()).gpus] == known


LAWS = (
    the_answer_is_whole,
    every_gpu_has_an_identity,
    every_sample_is_plausible,
    what_asking_costs_is_told,
    events_can_be_watched,
    release_gives_everything_back,
)
