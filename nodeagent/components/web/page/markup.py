"""The small words of HTML for all sections of the page; pure.

All text from hardware, pods or configuration passes `esc` on its way into the page.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote

from nodeagent.components.web.api.records import ConditionRecord
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.wording import render_age

COMMANDS = re.compile(r"`([^`]+)`")
SYMBOLS = {"ok": "✓", "warn": "!", "bad": "✗"}
"""Colour is never the only sign: each style has a symbol, and a word beside it."""


def esc(text: object) -> str:
    """Plain text: no markup, and no invisible characters, such as a change of writing direction."""
    plain = str(text)
    if not plain.isprintable():  # the usual text is spared the walk, which would be most of a page's cost
        plain = "".join(character if character.isprintable() else "�" for character in plain)
    return escape(plain)


def prose(text: str) -> str:
    """A sentence with its `commands` marked."""
    return COMMANDS.sub(r"<code>\1</code>", esc(text))


def age(since_seconds: float, now_seconds: float) -> str:
    """How long ago; the script keeps counting from `data-since`."""
    return f'<time data-since="{since_seconds:.0f}">{render_age(now_seconds - since_seconds)}</time>'


def mark(style: str, word: str) -> str:
    """A word with its symbol, in the colour of its style."""
    return f'<span class="tag {style}">{SYMBOLS[style]} {esc(word)}</span>'


def verdict(style: str, word: str, sentence: str) -> str:
    """A page's verdict in a word and a sentence; read out at each change."""
    return (
        f'<div id="verdict" class="verdict {style}" role="status"><span aria-hidden="true">{SYMBOLS[style]}</span>'
        f"<p><b>{esc(word)}</b>{prose(sentence)}</p></div>"
    )


def section(name: str, title: str, body: str) -> str:
    """A named section of the page with a heading; its content is replaced by the script."""
    return f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{esc(title)}</h2>{body}</section>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, name: str = "") -> str:
    """A table with cells of markup; on a narrow screen each row stands as a list of cells."""
    heads = "".join(f'<th scope="col">{esc(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>" + "".join(_cell(title, cell) for title, cell in zip(head, row, strict=True)) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{esc(caption)}"><table class="{name or "rows"}">'
        f"<caption>{esc(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(title: str, cell: str) -> str:
    return f'<td class="wide" data-head="{esc(title)}">{f"<div>{cell}</div>" if cell else ""}</td>'


def folded(name: str, summary: str, body: str) -> str:
    """Seldom read content, behind a summary line."""
    return f'<details id="{name}" aria-label="{esc(summary)}"><summary>{esc(summary)}</summary>{body}</details>'


def pairs(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values; values are markup already."""
    return '<dl class="pairs">' + "".join(f"<dt>{esc(name)}</dt><dd>{what}</dd>" for name, what in facts) + "</dl>"


def gpu_path(uuid: str) -> str:
    """The permanent address of a GPU."""
    return f"/gpus/{quote(uuid, safe='')}"


def pod_path(pod: PodIdentity) -> str:
    """The permanent address of a pod."""
    return f"/pods/{quote(pod.namespace, safe='')}/{quote(pod.name, safe='')}"


def pod_link(pod: PodIdentity | None) -> str:
    """A pod by its name, or a note while the name is unknown."""
    if pod is None:
        return '<span class="dim">pod not known yet</span>'
    name = esc(pod.describe())
    return f'<a href="{pod_path(pod)}">{name}</a>' if pod.name else name


def condition_path(code: str) -> str:
    """The permanent address of a condition, for alerts and runbooks."""
    return f"/conditions/{quote(code, safe='')}"


def condition_id(condition: ConditionRecord) -> str:
    """The anchor of a condition: its code, and its key, where there is a key."""
    about = "".join(character if character.isalnum() or character in "-." else "-" for character in condition.key)
    return esc(f"condition-{condition.code}" + (f"-{about}" if about else ""))
