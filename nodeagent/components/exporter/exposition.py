"""The Prometheus text format and OpenMetrics; pure. Tests hold them against the parsers of prometheus-client.

The renderer takes about a thirtieth of the general renderer's time, on the path of every scrape.
A family becomes a block once; lines are the same in both formats, only the head differs.
"""

from collections.abc import Iterable
from itertools import accumulate
from math import isinf, isnan
from typing import Literal, NamedTuple

from nodeagent.model.plugin import Distribution
from nodeagent.model.values import Value

MetricType = Literal["gauge", "counter", "histogram", "summary", "untyped"]
Labels = tuple[tuple[str, str], ...]
OPENMETRICS_END = b"# EOF\n"


class Family(Value, frozen=True):
    """A metric with help and all samples or distributions; samples are written in the given order."""

    name: str
    type: MetricType
    help: str
    samples: tuple[tuple[Labels, float], ...] = ()
    distributions: tuple[tuple[Labels, Distribution], ...] = ()


class Block(NamedTuple):
    """A family with series as lines, each with a line end."""

    name: str
    type: MetricType
    help: str
    lines: str


def make_family(name: str, kind: MetricType, text: str, samples: Iterable[tuple[Labels, float | None]]) -> Family:
    """A family from pairs of labels and value; an unknown value has no series."""
    known = tuple((labels, value) for labels, value in samples if value is not None)
    return Family(name=name, type=kind, help=text, samples=known)


def gauge(name: str, text: str, samples: Iterable[tuple[Labels, float | None]]) -> Family:
    """A family of values that rise and fall."""
    return make_family(name, "gauge", text, samples)


def counter(name: str, text: str, samples: Iterable[tuple[Labels, float | None]]) -> Family:
    """A family of totals that only rise."""
    return make_family(name, "counter", text, samples)


def render_families(families: Iterable[Family]) -> list[Block]:
    """A block for each family; a family without samples is left out, because absence is not zero."""
    return [_render_block(family) for family in families if family.samples or family.distributions]


class RememberedBlocks:
    """Blocks of families that rarely change: comparing costs a tenth of rendering."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Family, Block]] = {}

    def render(self, families: Iterable[Family]) -> list[Block]:
        """As `render_families`; each name comes once."""
        blocks: list[Block] = []
        for family in families:
            if not family.samples and not family.distributions:
                continue
            known = self._known.get(family.name)
            # 1, 1.0 and True are equal, and are written alike; NaN is equal to nothing, and is written anew.
            if known is None or known[0] != family:
                known = self._known[family.name] = (family, _render_block(family))
            blocks.append(known[1])
        return blocks


def render_exposition(families: Iterable[Family]) -> bytes:
    """All families in the text format."""
    return join_text(render_families(families))


def join_text(blocks: Iterable[Block]) -> bytes:
    """Blocks in the text format, version 0.0.4."""
    parts = [
        f"# HELP {block.name} {_escape_help(block.help)}\n# TYPE {block.name} {block.type}\n{block.lines}"
        for block in blocks
    ]
    return "".join(parts).encode("utf-8", "replace")


def join_openmetrics(blocks: Iterable[Block]) -> bytes:
    """Blocks in OpenMetrics, without the end mark.

    A counter in OpenMetrics must be called `…_total`; a counter with another name, as most of DCGM's, is of unknown
    type. Name and values stay, as queries use both.
    """
    parts = []
    for block in blocks:
        name = block.name
        kind: str = block.type if block.type in {"gauge", "histogram", "summary"} else "unknown"
        if block.type == "counter" and name.endswith("_total"):
            name, kind = name.removesuffix("_total"), "counter"
        text = _escape_help(block.help).replace('"', '\\"')
        parts.append(f"# TYPE {name} {kind}\n# HELP {name} {text}\n{block.lines}")
    return "".join(parts).encode("utf-8", "replace")


def _render_block(family: Family) -> Block:
    return Block(family.name, family.type, family.help, "".join(_render_lines(family)))


def _render_lines(family: Family) -> Iterable[str]:
    for labels, value in family.samples:
        yield f"{render_sample(family.name, labels, value)}\n"
    for labels, distribution in family.distributions:
        yield from _render_distribution(family.name, labels, distribution)


def _render_distribution(name: str, labels: Labels, distribution: Distribution) -> Iterable[str]:
    """Buckets count all values up to the bound; bounds are floats, as OpenMetrics requires."""
    bounds = (*(repr(float(bound)) for bound in distribution.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(distribution.counts), strict=True):
        yield f"{render_sample(f'{name}_bucket', (*labels, ('le', bound)), count)}\n"
    yield f"{render_sample(f'{name}_sum', labels, distribution.sum)}\n"
    yield f"{render_sample(f'{name}_count', labels, sum(distribution.counts))}\n"


def render_sample(name: str, labels: Labels, value: float) -> str:
    """The line of a series."""
    if not labels:
        return f"{name} {render_number(value)}"
    inner = ",".join(f'{key}="{escape_label(text)}"' for key, text in labels)
    return f"{name}{{{inner}}} {render_number(value)}"


def render_number(value: float) -> str:
    """Integers without a point, floats in the shortest form that reads back equal."""
    if isinstance(value, int):
        return str(int(value))
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def escape_label(text: str) -> str:
    """A label value in the form between quotes."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
