"""The picture of `docs/concepts.md`: the ways in which a GPU is given out, beside one another.

Drawn by hand: this is a picture's content, nothing of it is computed from the code. Each way has two bars: whose the
memory is, from left to right, and who runs, from left to right as time goes on and from top to bottom at once.
"""

from collections.abc import Iterator
from html import escape
from typing import Final, NamedTuple

WIDTH, HEIGHT = 800, 583
CARD_WIDTH, CARD_HEIGHT, GAP, LEFT, TOP = 250, 254, 9, 16, 50
BAR_LEFT, BAR_WIDTH, BAR_HEIGHT = 72, 166, 38
COLUMNS = 3
_STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.head { font-size: 15px; font-weight: 600 } .note { fill: #57606a }
.code { font-family: ui-monospace, monospace; font-size: 11.5px }
.paper { fill: #fff } .card { fill: #f6f8fa; stroke: #d0d7de }
.bar { fill: none; stroke: #57606a } .A { fill: #bcd9f7 } .B { fill: #ffd3ab } .C { fill: #bce5c4 } .none { fill: none }
.open { stroke: none } .fence { stroke: #57606a; stroke-dasharray: 4 3 } .limit { stroke: #57606a }
.wall { stroke: #24292f; stroke-width: 3 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .note { fill: #9da7b3 } .paper { fill: #0d1117 } .card { fill: #161b22; stroke: #30363d }
.bar { stroke: #9da7b3 } .A { fill: #1f4f82 } .B { fill: #7d4310 } .C { fill: #1f5c31 }
.fence, .limit { stroke: #9da7b3 } .wall { stroke: #f0f6fc }
}
"""


class Part(NamedTuple):
    """What of a bar is whose: left, top, width and height, each as a part of the bar."""

    owner: str
    left: float
    top: float
    width: float
    height: float


class Card(NamedTuple):
    """One way of giving out a GPU."""

    title: str
    door: str
    memory: tuple[Part, ...]
    running: tuple[Part, ...]
    border: str
    asks: tuple[str, ...]
    apart: str
    take: tuple[str, str]


def cut(*shares: tuple[str, float]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for owner, share in shares:
        parts.append(Part(owner, parts[-1].left + parts[-1].width if parts else 0, 0, share, 1))
    return tuple(parts)


def stack(*shares: tuple[str, float]) -> tuple[Part, ...]:
    return tuple(Part(part.owner, 0, part.left, 1, part.width) for part in cut(*shares))


def take_turns(order: str) -> tuple[Part, ...]:
    """One after the other, each as long."""
    return cut(*((owner, 1 / len(order)) for owner in order))


CARDS: Final = (
    Card(
        title="whole",
        door="door whole",
        memory=cut(("A", 1)),
        running=cut(("A", 1)),
        border="limit",
        asks=("nvidia.com/gpu",),
        apart="nobody else is there",
        take=("one program fills a GPU,", "or you do not know yet"),
    ),
    Card(
        title="shared by turns",
        door="door whole",
        memory=cut(("A", 0.5), ("B", 0.2), ("C", 0.3)),
        running=take_turns("ABCABCABC"),
        border="open",
        asks=("nvidia.com/gpu", "(sharing.timeSlicing)"),
        apart="nothing",
        take=("a few people try things out", "and trust one another"),
    ),
    Card(
        title="MPS",
        door="door whole",
        memory=cut(("A", 1 / 3), ("B", 1 / 3), ("C", 1 / 3)),
        running=stack(("A", 1 / 3), ("B", 1 / 3), ("C", 1 / 3)),
        border="limit",
        asks=("nvidia.com/gpu", "(sharing.mps)"),
        apart="NVIDIA's daemon",
        take=("many small programs of one kind:", "one's fatal fault ends all of them"),
    ),
    Card(
        title="MIG",
        door="door whole",
        memory=cut(("A", 3 / 8), ("B", 5 / 8)),
        running=stack(("A", 3 / 8), ("B", 5 / 8)),
        border="wall",
        asks=("nvidia.com/mig-1g.10gb",),
        apart="the GPU itself",
        take=("strangers share a GPU, or latency", "must not depend on neighbours"),
    ),
    Card(
        title="parts",
        door="door fractions",
        memory=cut(("A", 0.5), ("B", 0.2), ("C", 0.3)),
        running=take_turns("AAABAACCAB"),
        border="fence",
        asks=("tencent.com/vcuda-core", "tencent.com/vcuda-memory"),
        apart="a library: a fence, no wall",
        take=("sizes vary and are known,", "and programs mean well"),
    ),
    Card(
        title="claims",
        door="door claims",
        memory=(),
        running=(),
        border="limit",
        asks=("a ResourceClaim (DRA)",),
        apart="what of these was claimed",
        take=("GPUs are wanted by what they are,", "or several pods want the same one"),
    ),
)


def render_concepts() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>The ways in which a GPU is given out: whole, by turns, by MPS, by MIG, in parts, by claims</title>",
        f"<style>\n{_STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        _text(LEFT, 22, "One GPU, given out in six ways", "head"),
        _text(LEFT, 40, "A, B and C are containers. Each GPU has one door at a time; a node may have several.", "note"),
    ]
    for number, card in enumerate(CARDS):
        row, column = divmod(number, COLUMNS)
        place = f"translate({LEFT + column * (CARD_WIDTH + GAP)} {TOP + row * (CARD_HEIGHT + GAP)})"
        lines += [f'<g transform="{place}">', *_render_card(card), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _render_card(card: Card) -> Iterator[str]:
    yield f'<rect class="card" width="{CARD_WIDTH}" height="{CARD_HEIGHT}" rx="6"/>'
    yield _text(12, 22, card.title, "head")
    yield _text(CARD_WIDTH - 12, 22, card.door, "note", anchor="end")
    if card.memory:
        yield from _render_bar(34, "memory", card.memory, card.border)
        yield from _render_bar(82, "runs", card.running, card.border)
    else:
        yield from _render_choice()
    yield _text(12, 142, "asked by", "note")
    for number, line in enumerate(card.asks):
        yield _text(BAR_LEFT, 142 + 16 * number, line, "code")
    yield _text(12, 182, "apart by", "note")
    yield _text(BAR_LEFT, 182, card.apart)
    yield _text(12, 208, "take it if", "note")
    for number, line in enumerate(card.take):
        yield _text(12, 226 + 16 * number, line)


def _render_bar(top: int, name: str, parts: tuple[Part, ...], border: str) -> Iterator[str]:
    yield _text(12, top + 23, name, "note")
    yield f'<g transform="translate({BAR_LEFT} {top})">'
    for part in parts:
        x, y, width, height = (
            part.left * BAR_WIDTH,
            part.top * BAR_HEIGHT,
            part.width * BAR_WIDTH,
            part.height * BAR_HEIGHT,
        )
        box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        yield f'<rect class="{part.owner} {border}" {box}/>'
        yield _text(x + width / 2, y + height / 2 + 4, part.owner, anchor="middle")
    yield f'<rect class="bar" width="{BAR_WIDTH}" height="{BAR_HEIGHT}"/></g>'


def _render_choice() -> Iterator[str]:
    """What a claim can have: the scheduler chooses one of these by its attributes."""
    yield _text(12, 48, "the scheduler chooses one of these:", "note")
    choices = (("GPU", "limit"), ("MIG", "wall"), ("share", "fence"))
    for number, (name, border) in enumerate(choices):
        x = 12 + number * 76
        yield f'<rect class="A {border}" x="{x}" y="58" width="70" height="38"/>'
        yield _text(x + 35, 81, name, anchor="middle")
    yield _text(12, 114, "one claim, one pod or several", "note")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    which = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{which}>{escape(text)}</text>'
