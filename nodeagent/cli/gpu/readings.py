"""The newest sample of a GPU in words: for the details in `top` and the columns of `status -o wide`; pure.

Owns the words. A value the hardware does not give is left out, never shown as zero.
"""

from collections.abc import Iterator

from nodeagent.components.exporter.series.clock_events import REASONS
from nodeagent.components.exporter.series.rates import NO_RATES, Rates
from nodeagent.model.telemetry import GpuSample
from nodeagent.model.values import Value
from nodeagent.model.wording import render_bytes

KIB = 1024


class Reading(Value, frozen=True):
    """A value with its name."""

    group: str
    name: str
    value: str


class Traffic(Value, frozen=True):
    """Bytes a second over a link."""

    transmit: float | None = None
    receive: float | None = None

    def __str__(self) -> str:
        if self.transmit is None or self.receive is None:
            return ""
        return f"{render_bytes(int(self.transmit))}/s out, {render_bytes(int(self.receive))}/s in"


def measure_pcie(sample: GpuSample, rates: Rates = NO_RATES) -> Traffic:
    """PCIe traffic by the hardware's own counters, else from totals."""
    counted = sample.profiling
    if counted is not None and counted.pcie_transmit_bytes_per_second is not None:
        return Traffic(transmit=counted.pcie_transmit_bytes_per_second, receive=counted.pcie_receive_bytes_per_second)
    return Traffic(transmit=rates.pcie_transmit_bytes, receive=rates.pcie_receive_bytes)


def measure_nvlink(sample: GpuSample, rates: Rates = NO_RATES) -> Traffic:
    """The traffic of all NVLinks together."""
    counted = sample.profiling
    if counted is not None and counted.nvlink_transmit_bytes_per_second is not None:
        return Traffic(
            transmit=counted.nvlink_transmit_bytes_per_second, receive=counted.nvlink_receive_bytes_per_second
        )
    if rates.nvlink_transmit_kib is None or rates.nvlink_receive_kib is None:
        return Traffic()
    return Traffic(transmit=rates.nvlink_transmit_kib * KIB, receive=rates.nvlink_receive_kib * KIB)


def describe_slowdown(sample: GpuSample) -> str:
    """Why clocks are not higher; empty where the driver gives no reason."""
    mask = sample.clock_event_reasons
    if mask is None:
        return ""
    named = [name.removeprefix("gpu_").replace("_", " ") for name, bit in REASONS.items() if mask & bit]
    return ", ".join(named) or "nothing"


def describe_clocks(sample: GpuSample) -> str:
    """SM and memory clock."""
    clocks = [str(clock) for clock in (sample.sm_clock_mhz, sample.memory_clock_mhz) if clock is not None]
    return f"{'/'.join(clocks)} MHz" if clocks else ""


def describe_ecc(sample: GpuSample) -> str:
    """Errors since the driver was loaded."""
    corrected, uncorrected = sample.ecc_corrected_volatile, sample.ecc_uncorrected_volatile
    if corrected is None or uncorrected is None:
        return ""
    return f"{corrected} corrected, {uncorrected} not"


def describe_link(sample: GpuSample) -> str:
    """The PCIe link's current generation and width."""
    if sample.pcie_generation is None or sample.pcie_width is None:
        return ""
    return f"gen {sample.pcie_generation} x{sample.pcie_width}"


def list_readings(sample: GpuSample, rates: Rates = NO_RATES) -> tuple[Reading, ...]:
    """Every reading for the comparison of a GPU with the other GPUs."""
    groups = {
        "use": _list_use(sample),
        "memory": _list_memory(sample),
        "clocks": _list_clocks(sample),
        "heat and power": _list_heat(sample),
        "PCIe": _list_pcie(sample, rates),
        "NVLink": _list_nvlink(sample, rates),
        "errors": _list_errors(sample),
    }
    return tuple(
        Reading(group=group, name=name, value=value)
        for group, found in groups.items()
        for name, value in found
        if value
    )


Named = Iterator[tuple[str, str]]


def _list_use(sample: GpuSample) -> Named:
    yield "GPU", _unit(sample.gpu_utilization_percent, "%")
    yield "memory bus", _unit(sample.memory_utilization_percent, "%")
    yield "encoder", _unit(sample.encoder_utilization_percent, "%")
    yield "decoder", _unit(sample.decoder_utilization_percent, "%")
    yield "JPEG", _unit(sample.jpeg_utilization_percent, "%")
    yield "optical flow", _unit(sample.ofa_utilization_percent, "%")
    if sample.profiling is not None:
        yield "SMs at work", _share(sample.profiling.sm_active)
        yield "warps per SM", _share(sample.profiling.sm_occupancy)
        yield "tensor cores", _share(sample.profiling.tensor_active)
        yield "memory interface", _share(sample.profiling.dram_active)


def _list_memory(sample: GpuSample) -> Named:
    yield "used", _bytes(sample.memory_used_bytes)
    yield "free", _bytes(sample.memory_free_bytes)
    yield "reserved", _bytes(sample.memory_reserved_bytes)
    yield "total", _bytes(sample.memory_total_bytes)
    yield "BAR1 used", _bytes(sample.bar1_used_bytes)


def _list_clocks(sample: GpuSample) -> Named:
    yield "SM", _unit(sample.sm_clock_mhz, " MHz")
    yield "memory", _unit(sample.memory_clock_mhz, " MHz")
    yield "video", _unit(sample.video_clock_mhz, " MHz")
    yield "performance state", "" if sample.performance_state is None else f"P{sample.performance_state}"
    yield "held back by", describe_slowdown(sample)


def _list_heat(sample: GpuSample) -> Named:
    yield "GPU", _unit(sample.gpu_temperature_celsius, " °C")
    yield "memory", _unit(sample.memory_temperature_celsius, " °C")
    yield "until it slows down", _unit(sample.slowdown_margin_celsius, " °C")
    yield "fan", _unit(sample.fan_speed_percent, "%")
    yield "power", _watts(sample.power_milliwatts)
    yield "power limit", _watts(sample.power_limit_milliwatts)


def _list_pcie(sample: GpuSample, rates: Rates) -> Named:
    yield "link", describe_link(sample)
    yield "traffic", str(measure_pcie(sample, rates))
    yield "replays", _unit(sample.pcie_replay_count)
    yield "correctable errors", _unit(sample.pcie_correctable_error_count)
    yield "fatal errors", _unit(sample.pcie_fatal_error_count)


def _list_nvlink(sample: GpuSample, rates: Rates) -> Named:
    yield "links up", _unit(sample.nvlinks_active)
    yield "traffic", str(measure_nvlink(sample, rates))
    yield "replays", _unit(sample.nvlink_replay_count)
    yield "recoveries", _unit(sample.nvlink_recovery_count)
    yield "CRC errors, flits", _unit(sample.nvlink_crc_flit_count)
    yield "CRC errors, data", _unit(sample.nvlink_crc_data_count)


def _list_errors(sample: GpuSample) -> Named:
    yield "ECC since the driver came", describe_ecc(sample)
    yield "ECC corrected, ever", _unit(sample.ecc_corrected_aggregate)
    yield "ECC uncorrected, ever", _unit(sample.ecc_uncorrected_aggregate)
    yield "rows remapped, correctable", _unit(sample.remapped_rows_correctable)
    yield "rows remapped, uncorrectable", _unit(sample.remapped_rows_uncorrectable)
    yield "row remapping waits for a reset", _truth(sample.remapped_rows_pending)
    yield "row remapping failed", _truth(sample.remapped_rows_failed)
    yield "pages retired, single bit", _unit(sample.retired_pages_single_bit)
    yield "pages retired, double bit", _unit(sample.retired_pages_double_bit)


def _unit(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio * 100:.0f}%"


def _bytes(count: int | None) -> str:
    return "" if count is None else render_bytes(count)


def _watts(milliwatts: int | None) -> str:
    return "" if milliwatts is None else f"{milliwatts / 1000:.0f} W"


def _truth(value: bool | None) -> str:  # noqa: FBT001 - a reading
    return "" if value is None else ("yes" if value else "no")
