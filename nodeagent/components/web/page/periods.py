"""The last hour and the last day of each GPU in a fixed number of numbers, for the charts of its page; pure.

A period is a ring of steps, with the mean and the highest reading of four measures for each step. Memory does not
grow: 6 KB for a GPU. A period begins anew with the agent; older readings are Prometheus' business.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from nodeagent.model.ids import GpuUuid
from nodeagent.model.telemetry import GpuSample, NodeSample

MEASURES: Final = 4
_UNKNOWN: Final = -1
_MOST: Final = 2**31 - 1
"""The largest value kept; a driver that subtracts more than there is reports almost 2^64, which is no reading."""


class Span(NamedTuple):
    """A length of time, and its number of steps."""

    name: str
    step_seconds: int
    steps: int


HOUR: Final = Span("hour", 60, 60)
DAY: Final = Span("day", 900, 96)
SPANS: Final = (HOUR, DAY)


class Reading(NamedTuple):
    """A step of a measure."""

    step: int
    mean: int
    highest: int


def read_measures(sample: GpuSample) -> tuple[int | None, ...]:
    """Utilisation in percent, memory in MiB, power in W, temperature in °C."""
    used, power = sample.memory_used_bytes, sample.power_milliwatts
    return (
        sample.gpu_utilization_percent,
        None if used is None else used >> 20,
        None if power is None else power // 1000,
        sample.gpu_temperature_celsius,
    )


class Period:
    """A span of a GPU's readings."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.last = -1
        self._means = array("i", [_UNKNOWN]) * (span.steps * MEASURES)
        self._highest = array("i", self._means)
        self._sums, self._counts = [0] * MEASURES, [0] * MEASURES

    def add(self, values: tuple[int | None, ...], time_seconds: float) -> None:
        """Add readings; a clock going back a little adds to the newest step, and a jumping clock begins anew."""
        step = int(time_seconds // self.span.step_seconds)
        step = max(step, self.last) if step > self.last - self.span.steps else step
        if step != self.last:
            kept = self.last if step > self.last else -1
            for skipped in range(max(kept + 1, step - self.span.steps + 1), step + 1):
                self._clear(skipped)
            self.last = step
            self._sums, self._counts = [0] * MEASURES, [0] * MEASURES
        base = step % self.span.steps * MEASURES
        for measure, value in enumerate(values):
            if value is not None and value <= _MOST:
                self._sums[measure] += value
                self._counts[measure] += 1
                self._means[base + measure] = self._sums[measure] // self._counts[measure]
                self._highest[base + measure] = max(value, self._highest[base + measure])

    def read(self, measure: int) -> Iterator[Reading]:
        """The steps with readings, oldest first."""
        for step in range(max(0, self.last - self.span.steps + 1), self.last + 1):
            at = step % self.span.steps * MEASURES + measure
            if self._highest[at] != _UNKNOWN:
                yield Reading(step, self._means[at], self._highest[at])

    def _clear(self, step: int) -> None:
        base = step % self.span.steps * MEASURES
        for at in range(base, base + MEASURES):
            self._means[at] = self._highest[at] = _UNKNOWN


Periods = tuple[Period, ...]


class PeriodHistory:
    """The periods of every sampled GPU."""

    def __init__(self) -> None:
        self._periods: dict[GpuUuid, Periods] = {}

    def add(self, sample: NodeSample) -> None:
        """Add a sample; a GPU no longer sampled is forgotten."""
        self._periods = {gpu.uuid: self._periods.get(gpu.uuid) or tuple(map(Period, SPANS)) for gpu in sample.gpus}
        for gpu in sample.gpus:
            values = read_measures(gpu)
            for period in self._periods[gpu.uuid]:
                period.add(values, sample.time_seconds)

    def periods(self) -> Mapping[GpuUuid, Periods]:
        """The periods of every GPU; later samples go on filling them."""
        return self._periods
