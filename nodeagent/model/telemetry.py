"""One sample of what changes each second. A value the hardware does not give is `None`: absence is not zero."""

from nodeagent.model.gpu import Unreadable
from nodeagent.model.ids import GpuUuid, MigUuid
from nodeagent.model.values import Value


class ProcessSample(Value, frozen=True):
    """One process on one GPU or MIG device."""

    pid: int
    memory_used_bytes: int | None = None
    sm_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    graphics: bool = False


class ProfilingSample(Value, frozen=True):
    """Hardware-counter ratios (0 to 1) and rates, averaged since the sample before: Hopper and later."""

    graphics_engine_active: float | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    fp64_active: float | None = None
    fp32_active: float | None = None
    fp16_active: float | None = None
    pcie_transmit_bytes_per_second: float | None = None
    pcie_receive_bytes_per_second: float | None = None
    nvlink_transmit_bytes_per_second: float | None = None
    nvlink_receive_bytes_per_second: float | None = None


class MigSample(Value, frozen=True):
    """One MIG device's share."""

    uuid: MigUuid
    gpu_instance_id: int
    compute_instance_id: int
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    profiling: ProfilingSample | None = None
    processes: tuple[ProcessSample, ...] = ()


class GpuSample(Value, frozen=True):
    """One GPU at one moment."""

    uuid: GpuUuid
    lost: str = ""
    """Why nothing could be read of it; empty for one that answers."""
    silent: bool = False
    """Whether only the asking failed: a call that hung or was refused says nothing of the hardware."""

    gpu_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    jpeg_utilization_percent: int | None = None
    ofa_utilization_percent: int | None = None

    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    bar1_total_bytes: int | None = None
    bar1_used_bytes: int | None = None

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    video_clock_mhz: int | None = None
    performance_state: int | None = None
    clock_event_reasons: int | None = None

    gpu_temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    slowdown_margin_celsius: int | None = None
    fan_speed_percent: int | None = None

    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    energy_millijoules: int | None = None
    power_violation_nanoseconds: int | None = None
    thermal_violation_nanoseconds: int | None = None

    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replay_count: int | None = None
    pcie_transmit_bytes: int | None = None
    pcie_receive_bytes: int | None = None

    nvlink_transmit_kib: int | None = None
    nvlink_receive_kib: int | None = None
    nvlink_replay_count: int | None = None
    nvlink_recovery_count: int | None = None
    nvlink_crc_flit_count: int | None = None
    nvlink_crc_data_count: int | None = None
    nvlinks_active: int | None = None

    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None
    remapped_rows_correctable: int | None = None
    remapped_rows_uncorrectable: int | None = None
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None

    recovery_action: int | None = None
    fabric_health_mask: int | None = None
    vgpu_license_active: bool | None = None

    profiling: ProfilingSample | None = None
    processes: tuple[ProcessSample, ...] = ()
    mig: tuple[MigSample, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


class NodeSample(Value, frozen=True):
    """State: the newest sample of all GPUs; only the newest is kept."""

    time_seconds: float
    """Wall clock, Unix seconds, of the moment the sampling began."""
    gpus: tuple[GpuSample, ...] = ()
    took_seconds: float = 0.0
    call_count: int = 0


class EventWatch(Value, frozen=True):
    """State: whether what the driver reports by itself is being heard."""

    watched: bool
    reason: str = ""
    """Why not; empty while it is."""
