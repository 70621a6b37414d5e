"""Charts with axes: a GPU's last hour and last day, the mean as a line under the highest of each step; pure.

Each chart has its range in words for readers who do not see the drawing; times are the node's, in UTC.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from nodeagent.components.web.page.markup import esc, section
from nodeagent.components.web.page.periods import DAY, HOUR, Period, Periods, Reading, Span
from nodeagent.model.gpu import Gpu
from nodeagent.model.telemetry import GpuSample

WIDTH, HEIGHT, LEFT, BOTTOM = 480, 130, 52, 20
TICKS = {HOUR: (900, "%H:%M"), DAY: (21_600, "%H:%M")}
"""Seconds between two marks of the time axis, and the format of a mark."""
FULL_CELSIUS = 100


class Measure(NamedTuple):
    """A quantity to draw, the full scale, and the name of a `unit`."""

    name: str
    full: int
    unit: int
    word: str


def plan_measures(gpu: Gpu, sample: GpuSample | None) -> tuple[Measure, ...]:
    """The four measures in the order of periods, each on a fixed scale."""
    total = (sample.memory_total_bytes if sample is not None else None) or gpu.memory_total_bytes
    limit = (sample.power_limit_milliwatts if sample is not None else None) or gpu.power_limit_milliwatts or 0
    return (
        Measure("Utilisation", 100, 1, "%"),
        Measure("Memory", total >> 20, 1024, "GiB"),
        Measure("Power", limit // 1000, 1, "W"),
        Measure("Temperature", FULL_CELSIUS, 1, "°C"),
    )


def render_charts(gpu: Gpu, sample: GpuSample | None, periods: Periods) -> dict[str, str]:
    """A section of the page for each span; none without readings."""
    measures = plan_measures(gpu, sample)
    parts = {}
    for period in periods:
        drawn = [_render_chart(measure, period, number) for number, measure in enumerate(measures)]
        if any(drawn):
            name = period.span.name
            parts[name] = section(name, f"The last {name}", f'<div class="card charts">{"".join(drawn)}</div>')
    return parts


def _render_chart(measure: Measure, period: Period, number: int) -> str:
    readings = list(period.read(number))
    if not readings:
        return ""
    highest = max(one.highest for one in readings)
    full = max(measure.full, highest, 1)
    mean = sum(one.mean for one in readings) // len(readings)
    words = f"{mean // measure.unit} {measure.word} on average, {highest // measure.unit} {measure.word} at most"
    label = f"{measure.name}, last {period.span.name}: {words}"
    axes = "".join((*_render_scale(measure, full), *_render_times(period.span, period.last)))
    return (
        f"<figure><figcaption>{esc(measure.name)} <span>{esc(words)}</span></figcaption>"
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{esc(label)}">'
        f"{axes}{_render_curves(readings, period, full)}</svg></figure>"
    )


def _across(step: float, span: Span, last: int) -> float:
    return LEFT + (step - (last - span.steps + 1)) * (WIDTH - LEFT) / span.steps


def _up(value: int, full: int) -> float:
    return (HEIGHT - BOTTOM) - value * (HEIGHT - BOTTOM - 8) / full


def _render_scale(measure: Measure, full: int) -> Iterator[str]:
    for value in (0, full // 2, full):
        height = _up(value, full)
        yield f'<path class="grid" d="M{LEFT} {height:.0f}H{WIDTH}"/>'
        yield f'<text x="{LEFT - 6}" y="{height + 4:.0f}">{value // measure.unit} {esc(measure.word)}</text>'


def _render_times(span: Span, last: int) -> Iterator[str]:
    every, style = TICKS[span]
    first_seconds, end_seconds = (last - span.steps + 1) * span.step_seconds, (last + 1) * span.step_seconds
    for seconds in range(-(-first_seconds // every) * every, end_seconds, every):
        across = _across(seconds / span.step_seconds, span, last)
        yield f'<path class="grid" d="M{across:.0f} 8V{HEIGHT - BOTTOM}"/>'
        time = datetime.fromtimestamp(seconds, tz=UTC)
        yield f'<text class="time" x="{min(across, WIDTH - 17):.0f}" y="{HEIGHT - 5}">{time:{style}}</text>'


def _render_curves(readings: list[Reading], period: Period, full: int) -> str:
    """A gap in the readings is a gap in the drawing."""
    bars, line, before = [], [], None
    width = (WIDTH - LEFT) / period.span.steps
    for step, mean, highest in readings:
        across = _across(step, period.span, period.last)
        bars.append(f"M{across:.1f} {HEIGHT - BOTTOM}V{_up(highest, full):.1f}h{width:.1f}V{HEIGHT - BOTTOM}Z")
        line.append(f"{'L' if before == step - 1 else 'M'}{across:.1f} {_up(mean, full):.1f}h{width:.1f}")
        before = step
    return f'<path class="most" d="{"".join(bars)}"/><path class="mean" d="{"".join(line)}"/>'
