"""The last minutes of each GPU, kept small for the page; pure.

A reading every five seconds for five minutes: readings in between are Prometheus' business.
"""

from collections import deque
from collections.abc import Mapping

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.model.values import Value

STEP_SECONDS = 5
POINTS = 60


class Point(Value, frozen=True):
    """A GPU at a moment; `None` for unread measures."""

    step: int
    utilization_percent: int | None = None
    memory_used_bytes: int | None = None
    power_milliwatts: int | None = None
    temperature_celsius: int | None = None


def take_point(sample: GpuSample, time_seconds: float) -> Point:
    """The measures of a sample for the page."""
    return Point(
        step=int(time_seconds // STEP_SECONDS),
        utilization_percent=sample.gpu_utilization_percent,
        memory_used_bytes=sample.memory_used_bytes,
        power_milliwatts=sample.power_milliwatts,
        temperature_celsius=sample.gpu_temperature_celsius,
    )


class Trends:
    """A ring of points for each sampled GPU."""

    def __init__(self) -> None:
        self._points: dict[GpuUuid, deque[Point]] = {}

    def add(self, sample: NodeSample) -> None:
        """Add a sample; the newest of a step stands for the step, and a GPU no longer sampled is forgotten."""
        kept = {gpu.uuid: self._points.get(gpu.uuid, deque(maxlen=POINTS)) for gpu in sample.gpus}
        for gpu in sample.gpus:
            point, ring = take_point(gpu, sample.time_seconds), kept[gpu.uuid]
            if ring and ring[-1].step == point.step:
                ring[-1] = point
            else:
                ring.append(point)
        self._points = kept

    def points(self) -> Mapping[GpuUuid, tuple[Point, ...]]:
        """All rings, oldest point first."""
        return {uuid: tuple(ring) for uuid, ring in self._points.items()}


class Curve(Value, frozen=True):
    """A measure over time, as drawn: the height at each step, in hundredths."""

    name: str
    now: str
    heights: tuple[tuple[int, int], ...] = ()
    lowest: str = ""
    highest: str = ""


def plan_curves(gpu: Gpu, sample: GpuSample | None, points: tuple[Point, ...]) -> tuple[Curve, ...]:
    """The four measures of a tile, each on a fixed scale, so that tiles can be compared with the eye."""
    if sample is None:
        return ()
    total = sample.memory_total_bytes or gpu.memory_total_bytes
    limit = sample.power_limit_milliwatts or gpu.power_limit_milliwatts or 0
    used, power, heat = sample.memory_used_bytes, sample.power_milliwatts, sample.gpu_temperature_celsius
    busy = sample.gpu_utilization_percent
    return (
        _curve("Utilisation", f"{busy} %", busy, [(one.step, one.utilization_percent) for one in points], 100, 1, "%"),
        _curve(
            "Memory",
            f"{_gib(used)} / {_gib(total)} GiB",
            used,
            [(one.step, one.memory_used_bytes) for one in points],
            total,
            1 << 30,
            "GiB",
        ),
        _curve(
            "Power",
            f"{_watts(power)} / {_watts(limit)} W" if limit else f"{_watts(power)} W",
            power,
            [(one.step, one.power_milliwatts) for one in points],
            limit,
            1000,
            "W",
        ),
        _curve(
            "Temperature", f"{heat} °C", heat, [(one.step, one.temperature_celsius) for one in points], 100, 1, "°C"
        ),
    )


def _curve(
    name: str, now: str, value: int | None, values: list[tuple[int, int | None]], full: int, unit: int, word: str
) -> Curve:
    known = [(step, height) for step, height in values if height is not None]
    if value is None or not known:
        return Curve(name=name, now="–" if value is None else now)
    bare = [height for _, height in known]
    lowest, highest = min(bare), max(bare)
    full = full or highest or 1
    return Curve(
        name=name,
        now=now,
        heights=tuple([(step, height * 100 // full if height < full else 100) for step, height in known]),
        lowest=str(lowest // unit),
        highest=f"{highest // unit} {word}",
    )


def _gib(count: int | None) -> str:
    return f"{(count or 0) / (1 << 30):.0f}"


def _watts(milliwatts: int | None) -> str:
    return f"{(milliwatts or 0) / 1000:.0f}"


def render_spark(curve: Curve) -> str:
    """The curve as a picture, with its range in words for readers who do not see the picture."""
    if not curve.heights:
        return ""
    last = curve.heights[-1][0]
    first = max(last - POINTS + 1, curve.heights[0][0])
    left = last - POINTS + 1
    shown = [(step - left, 100 - height) for step, height in curve.heights if step >= first]
    line = "L".join(["%d %d" % spot for spot in shown])  # noqa: UP031 - the inner loop of the page, half the time
    minutes = max(1, round((last - first) * STEP_SECONDS / 60))
    label = f"{curve.name}, last {minutes} min: {curve.lowest} to {curve.highest}"
    return (
        f'<svg class="spark" viewBox="0 0 {POINTS - 1} 100" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<path d="M{shown[0][0] - 1} 105V{shown[0][1]}L{line}H{POINTS}V105Z"/></svg>'
    )
