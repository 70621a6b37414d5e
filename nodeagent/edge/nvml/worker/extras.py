"""Readings beside the ordinary sample, for configured lists of metrics.

Runs in the worker process. Owns the names of such readings: `field/76/0` is NVML's field 76 of the whole GPU,
`field/138/3` field 138 of link 3, `gpm/9` a hardware counter, `link_error/2/5` an error counter of link 5,
`memory_error/0/1/7` an error counter of one memory unit, `call/…` a call below.
An unknown name has no value, like a reading that the hardware lacks.
"""

import pynvml

from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.fields import FieldBatch
from nodeagent.edge.nvml.worker.gpm import Profiler
from nodeagent.edge.nvml.worker.query import Query

_CALLS: dict[str, tuple[str, tuple[int, ...], int | str | None]] = {
    "compute_mode": ("nvmlDeviceGetComputeMode", (), None),
    "app_sm_clock": ("nvmlDeviceGetApplicationsClock", (pynvml.NVML_CLOCK_SM,), None),
    "app_memory_clock": ("nvmlDeviceGetApplicationsClock", (pynvml.NVML_CLOCK_MEM,), None),
    "max_sm_clock": ("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_SM,), None),
    "max_memory_clock": ("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_MEM,), None),
    "max_video_clock": ("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_VIDEO,), None),
    "shutdown_celsius": ("nvmlDeviceGetTemperatureThreshold", (pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,), None),
    "slowdown_celsius": ("nvmlDeviceGetTemperatureThreshold", (pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,), None),
    "memory_max_celsius": ("nvmlDeviceGetTemperatureThreshold", (pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,), None),
    "gpu_max_celsius": ("nvmlDeviceGetTemperatureThreshold", (pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,), None),
    "power_limit_min": ("nvmlDeviceGetPowerManagementLimitConstraints", (), 0),
    "power_limit_max": ("nvmlDeviceGetPowerManagementLimitConstraints", (), 1),
    "power_limit_default": ("nvmlDeviceGetPowerManagementDefaultLimit", (), None),
    "remap_banks_max": ("nvmlDeviceGetRowRemapperHistogram", (), "max"),
    "remap_banks_high": ("nvmlDeviceGetRowRemapperHistogram", (), "high"),
    "remap_banks_partial": ("nvmlDeviceGetRowRemapperHistogram", (), "partial"),
    "remap_banks_low": ("nvmlDeviceGetRowRemapperHistogram", (), "low"),
    "remap_banks_none": ("nvmlDeviceGetRowRemapperHistogram", (), "none"),
}
"""Name → pynvml's function, its arguments, and which part of its answer is meant."""

_OF_LINKS = (range(32, 68), range(138, 140), range(159, 169), range(201, 226), range(235, 251))
"""The numbers of NVLink's fields."""


class ExtraReader:
    """The extra readings of one GPU."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        fields = [field for name in names if (field := _parse_field(name))]
        self._fields = FieldBatch("extra field values", [field for field in fields if not _is_of_links(field)])
        self._links = FieldBatch("extra NVLink field values", [field for field in fields if _is_of_links(field)])
        metrics = {int(number): name for name in names for kind, _, number in [name.partition("/")] if kind == "gpm"}
        self._profiler = Profiler(None, {number: (name, 1.0) for number, name in metrics.items()}) if metrics else None

    def close(self) -> None:
        """Free the library's buffers."""
        if self._profiler is not None:
            self._profiler.close()

    def read(self, query: Query, *, can_profile: bool) -> dict[str, float]:
        """The readings with a number."""
        values: dict[str, float] = {**dict(self._fields.read(query)), **dict(self._links.read(query))}
        if self._profiler is not None and can_profile:
            values.update(self._profiler.read(query) or {})
        for name in self.names:
            number = _ask(query, name)
            if number is not None:
                values[name] = number
        return values


def _parse_field(name: str) -> tuple[str, int, int] | None:
    kind, *numbers = name.split("/")
    return (name, int(numbers[0]), int(numbers[1])) if kind == "field" else None


def _is_of_links(field: tuple[str, int, int]) -> bool:
    """Whether a field is about a link: NVLink's fields have a separate batch, as some drivers fail a mixed batch."""
    return any(field[1] in numbers for numbers in _OF_LINKS)


def _ask(query: Query, name: str) -> float | None:
    kind, *words = name.split("/")
    if kind == "link_error":
        answer = query.ask(name, "nvmlDeviceGetNvLinkErrorCounter", int(words[1]), int(words[0]))
        return None if answer is None else int(answer)
    if kind == "memory_error":
        answer = query.ask(name, "nvmlDeviceGetMemoryErrorCounter", *map(int, words))
        return None if answer is None else int(answer)
    if kind == "call" and words[0] in _CALLS:
        function, arguments, part = _CALLS[words[0]]
        return _pick(query.ask(name, function, *arguments), part)
    return None


def _pick(answer: Any, part: int | str | None) -> float | None:
    if answer is None:
        return None
    if part is None:
        return int(answer)
    return int(getattr(answer, part) if isinstance(part, str) else answer[part])
