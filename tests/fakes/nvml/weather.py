"""Puts a sample of the simulated world into the shared memory, so that a fake GPU lives as a simulated one does."""

from typing import Any

from nodeagent.model.telemetry import GpuSample, MigSample, ProcessSample, ProfilingSample
from tests.fakes.nvml import layout
from tests.fakes.nvml.layout import ABSENT_32, ABSENT_64

# member of GpuSample → member of layout.Gpu, for what is the same number on both sides
NUMBERS_32 = {
    "gpu_utilization_percent": "gpu_percent",
    "memory_utilization_percent": "memory_percent",
    "encoder_utilization_percent": "encoder_percent",
    "decoder_utilization_percent": "decoder_percent",
    "jpeg_utilization_percent": "jpeg_percent",
    "ofa_utilization_percent": "ofa_percent",
    "performance_state": "performance_state",
    "gpu_temperature_celsius": "temperature",
    "memory_temperature_celsius": "memory_temperature",
    "fan_speed_percent": "fan_percent",
    "power_milliwatts": "power_milliwatts",
    "power_limit_milliwatts": "power_limit_milliwatts",
    "pcie_generation": "pcie_generation",
    "pcie_width": "pcie_width",
    "pcie_replay_count": "pcie_replay_count",
    "retired_pages_single_bit": "retired_single_count",
    "retired_pages_double_bit": "retired_double_count",
    "retired_pages_pending": "retired_pending",
    "remapped_rows_correctable": "remapped_correctable",
    "remapped_rows_uncorrectable": "remapped_uncorrectable",
    "remapped_rows_pending": "remapped_pending",
    "remapped_rows_failed": "remapped_failed",
    "recovery_action": "recovery_action",
}
NUMBERS_64 = {
    "memory_total_bytes": "memory_total",
    "memory_used_bytes": "memory_used",
    "memory_free_bytes": "memory_free",
    "memory_reserved_bytes": "memory_reserved",
    "bar1_total_bytes": "bar1_total",
    "bar1_used_bytes": "bar1_used",
    "clock_event_reasons": "clock_reasons",
    "energy_millijoules": "energy_millijoules",
    "ecc_corrected_volatile": "ecc_corrected_volatile",
    "ecc_uncorrected_volatile": "ecc_uncorrected_volatile",
    "ecc_corrected_aggregate": "ecc_corrected_aggregate",
    "ecc_uncorrected_aggregate": "ecc_uncorrected_aggregate",
}
# member of GpuSample → member of each layout.Link, of which NVML gives the sum
LINK_SUMS = {
    "nvlink_transmit_kib": "transmit_kib",
    "nvlink_receive_kib": "receive_kib",
    "nvlink_replay_count": "replay_count",
    "nvlink_recovery_count": "recovery_count",
    "nvlink_crc_flit_count": "crc_flit_count",
    "nvlink_crc_data_count": "crc_data_count",
}
FIFTH_COUNTERS = (
    "nvlink_malformed_packet_count",
    "nvlink_buffer_overrun_count",
    "nvlink_receive_error_count",
    "nvlink_remote_error_count",
    "nvlink_general_error_count",
    "nvlink_integrity_error_count",
    "nvlink_transmit_discard_count",
    "nvlink_recovered_count",
    "nvlink_recovery_failed_count",
    "nvlink_recovery_event_count",
    "nvlink_effective_error_count",
    "nvlink_symbol_error_count",
)
RATIOS = {
    1: "graphics_engine_active",
    2: "sm_active",
    3: "sm_occupancy",
    5: "tensor_active",
    10: "dram_active",
    11: "fp64_active",
    12: "fp32_active",
    13: "fp16_active",
}
RATES = {
    20: "pcie_transmit_bytes_per_second",
    21: "pcie_receive_bytes_per_second",
    61: "nvlink_transmit_bytes_per_second",
    60: "nvlink_receive_bytes_per_second",
}


def encode_sample(gpu: layout.Gpu, sample: GpuSample, timestamp_microseconds: int) -> None:
    """Let the fake GPU be as the sample says; what the sample does not give, the fake has not."""
    gpu.lost = int(bool(sample.lost))
    if sample.lost:
        return
    for name, member in NUMBERS_32.items():
        value = getattr(sample, name)
        setattr(gpu, member, ABSENT_32 if value is None else int(value))
    for name, member in NUMBERS_64.items():
        value = getattr(sample, name)
        setattr(gpu, member, ABSENT_64 if value is None else value)
    for place, value in enumerate((sample.sm_clock_mhz, sample.sm_clock_mhz, sample.memory_clock_mhz)):
        gpu.clock_mhz[place] = value or 0
    gpu.clock_mhz[3] = sample.video_clock_mhz or 0
    gpu.margin, gpu.margin_known = sample.slowdown_margin_celsius or 0, int(sample.slowdown_margin_celsius is not None)
    gpu.violation_nanoseconds[0] = sample.power_violation_nanoseconds or 0
    gpu.violation_nanoseconds[1] = sample.thermal_violation_nanoseconds or 0
    gpu.pcie_bytes[0], gpu.pcie_bytes[1] = sample.pcie_transmit_bytes or 0, sample.pcie_receive_bytes or 0
    if sample.fabric_health_mask is not None:
        gpu.fabric_health_mask = sample.fabric_health_mask
    _encode_links(gpu, sample)
    _encode_metrics(gpu.gpm, sample.profiling)
    gpu.process_count = 0
    for process in sample.processes:
        _encode_process(gpu, process, timestamp_microseconds)
    for share in sample.mig:
        _encode_share(gpu, share)


def _encode_links(gpu: layout.Gpu, sample: GpuSample) -> None:
    for name, member in LINK_SUMS.items():
        total = getattr(sample, name)
        for link in range(gpu.link_count):
            setattr(gpu.links[link], member, ABSENT_64 if total is None else total if link == 0 else 0)
    for place, name in enumerate(FIFTH_COUNTERS):
        total = getattr(sample, name)
        for link in range(gpu.link_count):
            gpu.links[link].fifth[place] = ABSENT_64 if total is None else total if link == 0 else 0


def _encode_metrics(metrics: Any, profiling: ProfilingSample | None) -> None:
    for table, scale in ((RATIOS, 100.0), (RATES, 1 / 1048576)):
        for metric, name in table.items():
            value = None if profiling is None else getattr(profiling, name)
            metrics[metric] = -1.0 if value is None else value * scale


def _encode_process(gpu: layout.Gpu, process: ProcessSample, timestamp_microseconds: int) -> None:
    slot = gpu.processes[gpu.process_count]
    gpu.process_count += 1
    slot.pid, slot.kind, slot.used_bytes = process.pid, int(process.graphics), process.memory_used_bytes or 0
    slot.gpu_instance = ABSENT_32 if process.gpu_instance_id is None else process.gpu_instance_id
    slot.compute_instance = ABSENT_32 if process.compute_instance_id is None else process.compute_instance_id
    slot.sm_percent, slot.memory_percent = process.sm_utilization_percent or 0, process.memory_utilization_percent or 0
    slot.encoder_percent = process.encoder_utilization_percent or 0
    slot.decoder_percent = process.decoder_utilization_percent or 0
    slot.timestamp_microseconds = 0 if process.sm_utilization_percent is None else timestamp_microseconds


def _encode_share(gpu: layout.Gpu, share: MigSample) -> None:
    slot = next(slot for slot in gpu.mig_devices if slot.present and slot.uuid.decode() == share.uuid)
    slot.memory_total, slot.memory_used = share.memory_total_bytes or 0, share.memory_used_bytes or 0
    slot.memory_free, slot.memory_reserved = share.memory_free_bytes or 0, share.memory_reserved_bytes or 0
    _encode_metrics(slot.gpm, share.profiling)
    for process in share.processes:
        _encode_process(gpu, process, 0)
