"""The status page as a single HTML document, readable without JavaScript; pure.

Each section has a name. The document is made of all sections; the script gets the changed sections.
"""

from collections.abc import Callable, Generator, Mapping
from string import Template
from typing import Any
from urllib.parse import quote

from nodeagent.components.web.api.records import EventRecord, StateRecord
from nodeagent.components.web.assets import SCRIPT, STYLE
from nodeagent.components.web.page.chains import ChainEvent, build_chains, describe_history, describe_records
from nodeagent.components.web.page.devices import render_devices, render_slices
from nodeagent.components.web.page.gpus import Trend, render_gpus
from nodeagent.components.web.page.markup import SYMBOLS, esc, verdict
from nodeagent.components.web.page.periods import Periods
from nodeagent.components.web.page.sections import (
    render_allocations,
    render_conditions,
    render_events,
    render_gates_and_components,
    render_labels,
    render_software,
)
from nodeagent.components.web.page.stats import render_stats
from nodeagent.components.web.page.topology import render_topology
from nodeagent.core.values import Envelope
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.repairs import RepairState
from nodeagent.model.values import Value
from nodeagent.rules.ids import build_names
from nodeagent.rules.receipts import Receipt

VERDICT_STYLES = {"ok": "ok", "attention": "warn", "broken": "bad", "starting": "warn"}
ICON_COLOURS = {"ok": "#176b32", "warn": "#b87a00", "bad": "#b3202c"}

DOCUMENT = Template("""<!doctype html>
<html lang="en" data-version="$version" data-time="$time">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" href="data:image/svg+xml,$icon">
<style>$style</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="bar"><div><h1><a href="/">nodeagent</a> <span>on</span> $node</h1>$nav
<span id="live" role="status">reload for newer values</span></div></header>
<main id="content">
$body
</main>
<footer>$foot<p><a href="/readyz">readyz</a> · <a href="/metrics">metrics</a> · <a href="/api/v1/">API</a> ·
<a href="/api/v1/openapi.json">OpenAPI</a> · <a href="/api/v1/events">events</a></p></footer>
<script>$script</script>
</body>
</html>
""")

NAVIGATION = (
    ("conditions", "Conditions"),
    ("gpus", "GPUs"),
    ("events", "Events"),
    ("allocations", "Allocations"),
    ("topology", "Topology"),
    ("software", "Software"),
)


class PageView(Value, frozen=True):
    """All material of a page."""

    state: StateRecord
    trend: Trend
    history: tuple[Envelope[Any], ...]
    past: tuple[EventRecord, ...] = ()
    """Events from before the agent's start."""
    periods: Mapping[GpuUuid, Periods] = {}
    receipts: tuple[Receipt, ...] = ()
    """The newest receipts with faults."""
    repairs: RepairState = RepairState()


class Page(Value, frozen=True):
    """A page by sections, in order."""

    title: str
    node: str
    style: str
    time_seconds: float
    sections: dict[str, str]
    foot: str = ""
    status: int = 200


Steps = Generator[None, None, Page | None]
"""A page under way, which pauses between its sections; the generator's return value is the page."""


def finish(steps: Steps) -> Page | None:
    """The page without stopping."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            page: Page | None = done.value
            return page


def render_overview(view: PageView) -> Steps:
    """The overview of the node; made in steps, so that a pod never waits for a whole page."""
    state = view.state
    parts: dict[str, Callable[[], str]] = {
        "verdict": lambda: render_verdict(state),
        "facts": lambda: render_stats(state),
        "conditions": lambda: render_conditions(state),
        "gpus": lambda: render_gpus(state, view.trend),
        "repairs": lambda: _render_repairs(view.repairs, state.time_seconds),
        "devices": lambda: render_devices(state),
        "events": lambda: render_events(build_chains(describe_all(view))),
        "allocations": lambda: render_allocations(state, view.receipts),
        "topology": lambda: render_topology(state.gpus),
        "software": lambda: render_software(state),
        "slices": lambda: render_slices(state),
        "parts": lambda: render_gates_and_components(state),
        "labels": lambda: render_labels(state.labels),
    }
    sections: dict[str, str] = {}
    for name, render in parts.items():
        yield
        sections[name] = render()
    return Page(
        title=f"{SYMBOLS[VERDICT_STYLES[state.verdict]]} {state.node} · nodeagent",
        node=state.node,
        style=VERDICT_STYLES[state.verdict],
        time_seconds=state.time_seconds,
        sections=sections,
        foot=f"<p>nodeagent {esc(state.version)} · pid {state.pid} · GPUs from {esc(state.gpu_source)}</p>",
    )


def _render_repairs(repairs: RepairState, now_seconds: float) -> str:
    if repairs.mode == "off":
        return ""
    from nodeagent.components.web.page.repairs import render_repairs  # noqa: PLC0415 - with repairs off nothing of them is loaded

    return render_repairs(repairs, now_seconds)


def describe_all(view: PageView) -> list[ChainEvent]:
    """Events of earlier processes of the agent, then of the present process, in words."""
    return [*describe_records(view.past), *describe_history(view.history, build_names(known_inventory(view.state)))]


def known_inventory(state: StateRecord) -> Inventory | None:
    """The inventory back from the record."""
    if state.gpus is None:
        return None
    gpus = tuple(record.gpu for record in state.gpus.gpus)
    return Inventory(generation=state.gpus.generation, gpus=gpus, vanished=state.gpus.vanished)


def render_verdict(state: StateRecord) -> str:
    """The verdict in a word and a sentence."""
    return verdict(VERDICT_STYLES[state.verdict], state.verdict, state.sentence)


GROUPS = {
    "events": ("pair", ("events", "allocations")),
    "software": ("columns", ("software", "slices", "parts", "labels")),
}
"""Sections side by side where there is room, by the first section."""


def render_document(page: Page, version: str) -> str:
    """The whole document; `version` is where the script takes up from."""
    navigation = "".join(
        f'<li><a href="#{name}">{title}</a></li>' for name, title in NAVIGATION if name in page.sections
    )
    icon = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
        f'<circle cx="8" cy="8" r="7" fill="{ICON_COLOURS[page.style]}"/></svg>'
    )
    return DOCUMENT.substitute(
        version=version,
        time=f"{page.time_seconds:.1f}",
        title=esc(page.title),
        icon=quote(icon, safe=""),
        style=STYLE,
        node=esc(page.node),
        nav=f'<nav aria-label="Parts of this page"><ul>{navigation}</ul></nav>' if navigation else "",
        body=_join(page.sections),
        foot=page.foot,
        script=SCRIPT,
    )


def _join(sections: Mapping[str, str]) -> str:
    lines: list[str] = []
    grouped: tuple[str, ...] = ()
    for name, html in sections.items():
        if name in grouped:
            continue
        style, members = GROUPS.get(name, ("", ()))
        grouped = members if all(one in sections for one in members) else ()
        parts = "".join(sections[one] for one in grouped)
        lines.append(f'<div class="{style}">{parts}</div>' if grouped else html)
    return "\n".join(lines)
