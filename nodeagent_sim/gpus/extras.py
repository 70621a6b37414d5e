"""Readings beside the ordinary sample, as far as a simulated GPU has them; pure. Names are the GPU worker's.

Values of a model's data file are read unchanged, the world's counts are divided among the links, errors without a fault
are zero, and all other readings are absent, as on hardware without them.
"""

from collections.abc import Mapping

from nodeagent.model.telemetry import GpuSample
from nodeagent_sim.gpus.gpu_state import GpuState

ALL_LINKS = 0xFFFFFFFF
_VIOLATIONS = (76, 77, 78, 79, 80, 81, 271)
_ECC_ELSEWHERE = {7, 8, 9, 10, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 26, 27, 28}
_NVLINK_5 = range(201, 216)
_NVLINK_5_VERSION = 5
_KIB = 1024


def render_extras(gpu: GpuState, sample: GpuSample, names: tuple[str, ...]) -> dict[str, float]:
    """The wanted readings that the GPU has."""
    known = {**_list_standing(gpu), **_list_counted(sample)}
    found = {name: known[name] if name in known else _read_link(gpu, sample, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _list_standing(gpu: GpuState) -> Mapping[str, float | None]:
    """Constant readings, from the model's data file."""
    model = gpu.seat.model
    clocks, thermal, power = model.clocks, model.thermal, model.power
    return {
        "call/compute_mode": 0,
        "call/max_sm_clock": clocks.sm_mhz,
        "call/max_memory_clock": clocks.memory_mhz,
        "call/max_video_clock": clocks.video_mhz,
        "call/shutdown_celsius": thermal.shutdown_celsius,
        "call/slowdown_celsius": thermal.slowdown_celsius,
        "call/gpu_max_celsius": thermal.maximum_celsius,
        "call/memory_max_celsius": thermal.memory_maximum_celsius,
        "call/power_limit_min": power.minimum_watts * 1000,
        "call/power_limit_max": power.limit_watts * 1000,
        "call/power_limit_default": power.limit_watts * 1000,
    }


def _list_counted(sample: GpuSample) -> Mapping[str, float | None]:
    """Counts of the world, and zero for errors that never occur in the world."""
    nothing = {f"field/{number}/0": 0.0 for number in (*_VIOLATIONS, *sorted(_ECC_ELSEWHERE))}
    counted: dict[str, float | None] = {
        "field/2/0": 1,
        "field/11/0": sample.ecc_corrected_volatile,
        "field/12/0": sample.ecc_uncorrected_volatile,
        "field/22/0": sample.ecc_corrected_aggregate,
        "field/23/0": sample.ecc_uncorrected_aggregate,
        "field/186/0": sample.power_milliwatts,
        "field/269/0": 0,
        "field/270/0": sample.thermal_violation_nanoseconds,
    }
    return nothing | counted


def _read_link(gpu: GpuState, sample: GpuSample, name: str) -> float | None:
    """One link's part of the sums in the sample; all links carry the same."""
    links = gpu.seat.model.nvlink
    kind, *words = name.split("/")
    if links is None or kind not in ("field", "link_error"):
        return None
    number, scope = int(words[0]), int(words[1])
    if kind == "link_error":
        return 0 if scope < links.links else None
    if scope >= links.links and scope != ALL_LINKS:
        return None
    part = 1 if scope == ALL_LINKS else links.links
    sums = {138: (sample.nvlink_transmit_kib, 1), 139: (sample.nvlink_receive_kib, 1)}
    if links.version >= _NVLINK_5_VERSION and number in _NVLINK_5:
        sums |= {202: (sample.nvlink_transmit_kib, _KIB), 204: (sample.nvlink_receive_kib, _KIB)}
        if number not in sums:
            return 0
    whole, unit = sums.get(number, (None, 1))
    return None if whole is None else whole * unit // part
