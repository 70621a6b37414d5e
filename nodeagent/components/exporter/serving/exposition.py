"""The Prometheus text format and OpenMetrics; pure. Tests hold them against the parsers of prometheus-client.

Own renderer because it is on the path of every scrape: about a thirtieth of the time of the general one.
A family becomes a block once; its lines are the same in both formats, only the head differs.
"""

from collections.abc import Iterable
from itertools import accumulate
from math import isinf, isnan
from typing import Literal, NamedTuple

from nodeagent.model.admission import Distribution
from nodeagent.model.values import Value

MetricType = Literal["gauge", "counter", "histogram", "summary", "untyped"]
Labels = tuple[tuple[str, str], ...]
OPENMETRICS_END = b"# EOF\n"


class Family(Value, frozen=True):
    """A metric with its help and all its samples, or its distributions; the order given is the order written."""

    name: str
    type: MetricType
    help: str
    samples: tuple[tuple[Labels, float], ...] = ()
    distributions: tuple[tuple[Labels, Distribution], ...] = ()


class Block(NamedTuple):
    """A family with its series as lines, each with its end."""

    name: str
    type: MetricType
    help: str
    lines: str


def make_family(name: str, kind: MetricType, text: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    """A family from pairs of labels and value."""
    return Family(name=name, type=kind, help=text, samples=tuple(samples))


def render_families(families: Iterable[Family]) -> list[Block]:
    """A block each; one without samples is left out, because absence is not zero."""
    return [_render_block(family) for family in families if family.samples or family.distributions]


class RememberedBlocks:
    """Blocks of families most of which say the same again: to compare costs a tenth of rendering."""

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

    A counter there must be called `…_total`; one that is not, as most of DCGM's, is of unknown type. Its name and
    values are what queries use, and they stay.
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
    """Buckets count everything up to their bound; bounds are floats, as OpenMetrics wants them."""
    bounds = (*(repr(float(bound)) for bound in distribution.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(distribution.counts), strict=True):
        yield f"{render_sample(f'{name}_bucket', (*labels, ('le', bound)), count)}\n"
    yield f"{render_sample(f'{name}_sum', labels, distribution.sum)}\n"
    yield f"{render_sample(f'{name}_count', labels, sum(distribution.counts))}\n"


def render_sample(name: str, labels: Labels, value: float) -> str:
    """One line of one series."""
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
    """A label value as it stands between quotes."""
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
