"""Curves as SVG, one picture an axis: drawn by hand, so that it needs nothing and reads in light and in dark.

Both scales are logarithmic: what grows in proportion rises as steeply as the dotted line, what grows faster is steeper.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from xml.sax.saxutils import escape

from tests.bench.curves import Curve

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 270, 46, 44
LABEL_PIXELS = 15
COLOURS = 10
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 }
.head { font-size: 15px; font-weight: 600 }
.grid { stroke: #ddd } .guide { stroke: #888; stroke-dasharray: 2 4 } .paper { fill: #fff }
.curve { fill: none; stroke-width: 2 } .leader { fill: none; stroke-width: .7; opacity: .6 }
.c0 { stroke: #1f6fb4 } .c1 { stroke: #c44e00 } .c2 { stroke: #1a7f37 } .c3 { stroke: #8250df } .c4 { stroke: #b3175b }
.c5 { stroke: #00757a } .c6 { stroke: #806000 } .c7 { stroke: #666 } .c8 { stroke: #3949ab } .c9 { stroke: #a0522d }
.p { stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #ccc } .paper { fill: #0d1117 } .grid { stroke: #30363d } .guide { stroke: #777 }
.c0 { stroke: #6cb6ff } .c1 { stroke: #ff9e64 } .c2 { stroke: #57d175 } .c3 { stroke: #c297ff } .c4 { stroke: #ff7eb6 }
.c5 { stroke: #4fd6d0 } .c6 { stroke: #e3b341 } .c7 { stroke: #aaa } .c8 { stroke: #9fa8ff } .c9 { stroke: #d9a27c }
}
"""


def render_chart(axis: str, curves: Sequence[Curve]) -> str:
    plane = _Plane(curves)
    body = [*_draw_grid(plane, axis), _draw_guide(plane), *_draw_curves(plane, curves)]
    title = f"What grows with the number of {axis}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(title)}: processor time in microseconds</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
            f'<text class="head" x="{LEFT}" y="24">{escape(title)}: microseconds of processor time</text>',
            *body,
            "</svg>\n",
        ]
    )


class _Plane:
    """Where a size and a cost are in the picture."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self.sizes = curves[0].sizes
        costs = [micros for curve in curves for micros in curve.micros]
        self.decades = range(floor(log10(min(costs))), ceil(log10(max(costs))) + 1)
        self._left, self._right = log10(self.sizes[0]), log10(self.sizes[-1])

    def x(self, size: float) -> float:
        return LEFT + (log10(size) - self._left) / (self._right - self._left) * (WIDTH - LEFT - RIGHT)

    def y(self, micros: float) -> float:
        low, high = self.decades[0], self.decades[-1]
        return HEIGHT - BOTTOM - (log10(micros) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def _draw_grid(plane: _Plane, axis: str) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for size in plane.sizes:
        x = plane.x(size)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{size:,}</text>'
    for decade in plane.decades:
        y = plane.y(10.0**decade)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:,g}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(axis)}</text>'


def _draw_guide(plane: _Plane) -> str:
    """In proportion: from the lower left corner, as far as it goes."""
    low, high = 10.0 ** plane.decades[0], 10.0 ** plane.decades[-1]
    reach = min(plane.sizes[-1] / plane.sizes[0], high / low)
    end = plane.x(plane.sizes[0] * reach), plane.y(low * reach)
    return f'<path class="guide" d="M{LEFT} {plane.y(low):.1f}L{end[0]:.1f} {end[1]:.1f}"/>'


def _draw_curves(plane: _Plane, curves: Sequence[Curve]) -> Iterator[str]:
    right = WIDTH - RIGHT
    ends = [plane.y(curve.micros[-1]) for curve in curves]
    for number, (curve, end, label) in enumerate(zip(curves, ends, _part_labels(ends), strict=True)):
        colour = f"c{number % COLOURS}"
        points = [(plane.x(size), plane.y(micros)) for size, micros in zip(curve.sizes, curve.micros, strict=True)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        yield f'<path class="curve {colour}" d="M{path}"/>'
        yield f'<path class="leader {colour}" d="M{right} {end:.1f}L{right + 12} {label:.1f}"/>'
        name = f"{curve.name}, {_shorten(curve.micros[-1])}"
        yield f'<text x="{right + 16}" y="{label + 4:.1f}">{escape(name)}</text>'


def _part_labels(ends: Sequence[float]) -> list[float]:
    """Where each curve's name goes: beside its end, and no two on top of each other."""
    places = [0.0] * len(ends)
    free = float(TOP)
    for number in sorted(range(len(ends)), key=ends.__getitem__):
        places[number] = max(ends[number], free)
        free = places[number] + LABEL_PIXELS
    overrun = free - LABEL_PIXELS - (HEIGHT - BOTTOM)
    return [place - max(0.0, overrun) for place in places] if overrun > 0 else places


def _shorten(micros: float) -> str:
    return f"{micros / 1000:.1f} ms" if micros >= 1000 else f"{micros:.0f} µs"
