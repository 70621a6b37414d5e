"""A sample of the readings of each second. A value not given by the hardware is `None`: absence is not zero."""

from typing import Final

from msgspec import field

from nodeagent.model.gpu import Unreadable
from nodeagent.model.ids import GpuUuid, MigUuid
from nodeagent.model.values import Value

FRESH_SECONDS_MIN: Final = 2.0


class ProcessSample(Value, frozen=True):
    """A process on a GPU or MIG device."""

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
    """The readings of a MIG device."""

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
    """The readings of a GPU at a moment."""

    uuid: GpuUuid
    lost: str = ""
    """Why no reading of the GPU succeeded; empty for a GPU that answers."""
    silent: bool = False
    """Whether only the call failed: a call that hung or was refused says nothing of the hardware."""

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
    pcie_correctable_error_count: int | None = None
    pcie_non_fatal_error_count: int | None = None
    pcie_fatal_error_count: int | None = None
    aer_correctable_count: int | None = None
    """The kernel's own counts of PCIe errors; the counts above are the GPU's."""
    aer_non_fatal_count: int | None = None
    aer_fatal_count: int | None = None

    nvlink_transmit_kib: int | None = None
    nvlink_receive_kib: int | None = None
    nvlink_replay_count: int | None = None
    nvlink_recovery_count: int | None = None
    nvlink_crc_flit_count: int | None = None
    nvlink_crc_data_count: int | None = None
    nvlinks_active: int | None = None
    nvlink_speed_min_mbps: int | None = None
    """Of the links in state up."""
    nvlink_speed_max_mbps: int | None = None
    nvlink_malformed_packet_count: int | None = None
    """From here on NVLink 5 and later, over all links."""
    nvlink_buffer_overrun_count: int | None = None
    nvlink_receive_error_count: int | None = None
    nvlink_remote_error_count: int | None = None
    nvlink_general_error_count: int | None = None
    nvlink_integrity_error_count: int | None = None
    nvlink_transmit_discard_count: int | None = None
    nvlink_recovered_count: int | None = None
    nvlink_recovery_failed_count: int | None = None
    nvlink_recovery_event_count: int | None = None
    nvlink_effective_error_count: int | None = None
    nvlink_symbol_error_count: int | None = None
    nvlink_effective_ber: float | None = None
    """Bit error rate of the worst link, after error correction."""
    nvlink_symbol_ber: float | None = None

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
    sram_threshold_exceeded: bool | None = None
    """So many uncorrectable errors hit the caches that the board is to be replaced."""
    memory_unrepairable: bool | None = None
    """The driver has no spare memory left for repairs."""

    recovery_action: int | None = None
    fabric_health_mask: int | None = None
    fabric_health_summary: int | None = None
    """0 not reported, 1 healthy, 2 unhealthy, 3 limited capacity."""
    vgpu_license_active: bool | None = None

    profiling: ProfilingSample | None = None
    processes: tuple[ProcessSample, ...] = ()
    mig: tuple[MigSample, ...] = ()
    extras: dict[str, float] = field(default_factory=dict)
    """Readings for a custom list of metrics, by the names in the list."""
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def pids(self) -> frozenset[int]:
        """Every process on the GPU or on a MIG device of it."""
        parts = (process for part in self.mig for process in part.processes)
        return frozenset(process.pid for process in (*self.processes, *parts))


class CallTime(Value, frozen=True):
    """The time of the calls of a function of the driver's library, since the agent started."""

    function: str
    count: int
    seconds: float


class CallFailures(Value, frozen=True):
    """How often a function answered with a given code, since the agent started."""

    function: str
    code: int
    count: int


class DriverAccess(Value, frozen=True):
    """The time of calls into the driver, and the starts and ends of the processes that make them."""

    calls: tuple[CallTime, ...] = ()
    failures: tuple[CallFailures, ...] = ()
    worker_starts: int = 0
    worker_stuck: int = 0
    """Replaced because a call did not come back."""
    worker_died: int = 0
    """Replaced because the library crashed, or the process was ended."""
    left_behind: tuple[int, ...] = ()
    """Processes that could not be ended, as they sleep in the driver, by pid."""


class NodeSample(Value, frozen=True):
    """State: the newest sample of all GPUs; only the newest is kept."""

    time_seconds: float
    """Wall clock, Unix seconds, of the moment the sampling began."""
    gpus: tuple[GpuSample, ...] = ()
    took_seconds: float = 0.0
    period_seconds: float = 1.0
    """Time from the beginning of this sample to the beginning of the next."""
    call_count: int = 0
    access: DriverAccess | None = None
    """`None` where GPUs are simulated."""

    @property
    def fresh_seconds(self) -> float:
        """How long the sample is current: until the next two samples were due and would have been read.

        A sample that takes longer than its period is followed at the end of its reading. However short the period, the
        sample is not old before its reader has had a moment.
        """
        return max(FRESH_SECONDS_MIN, 2 * max(self.period_seconds, self.took_seconds)) + self.took_seconds

    def is_old(self, now_seconds: float) -> bool:
        """Whether the sample is no longer current, at a moment of the wall clock."""
        return now_seconds - self.time_seconds > self.fresh_seconds


class EventWatch(Value, frozen=True):
    """State: whether the driver's own reports are received."""

    watched: bool
    reason: str = ""
    """Why reports are not received; empty while they are."""
