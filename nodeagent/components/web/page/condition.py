"""The permanent address of each condition: its meaning, its remedy, and whether it is active now; pure.

An alert or a runbook may link here for good: every code of the catalogue has a page, active or not.
"""

from nodeagent.components.web.api.records import ConditionRecord
from nodeagent.components.web.page.markup import age, esc, mark, pairs, prose, section
from nodeagent.components.web.page.overview import Page, PageView
from nodeagent.components.web.page.sections import SEVERITY_STYLES, render_condition_list
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.conditions.definition import ConditionDefinition

DEFINITIONS = {one.code: one for one in CATALOGUE}


def render_condition_page(code: str, view: PageView) -> Page | None:
    """The page of a condition; `None` for an unknown code."""
    definition = DEFINITIONS.get(code)
    if definition is None:
        return None
    state = view.state
    active = [one for one in state.conditions if one.code == code]
    style = SEVERITY_STYLES[definition.severity] if active else "ok"
    sections = {"verdict": _render_head(definition, active, style, state.time_seconds)}
    if active:
        cards = render_condition_list(active, state.time_seconds)
        sections["conditions"] = section("conditions", "Now", cards)
    sections["meaning"] = section("meaning", "What it means", f'<div class="card">{_render_facts(definition)}</div>')
    return Page(
        title=f"{code} · {state.node}",
        node=f"{state.node}: {code}",
        style=style,
        time_seconds=state.time_seconds,
        sections=sections,
    )


def _render_head(definition: ConditionDefinition, active: list[ConditionRecord], style: str, now_seconds: float) -> str:
    words = "it is not so now"
    if active:
        words = f"for {age(min(one.since_seconds for one in active), now_seconds)}"
    return (
        f'<div id="verdict" class="verdict {style}" role="status"><p>{mark(style, definition.title)}'
        f' <span class="dim">{words}</span></p></div>'
    )


def _render_facts(definition: ConditionDefinition) -> str:
    delay = definition.show_after_seconds
    facts = [
        ("Code", f"<code>{esc(definition.code)}</code>"),
        ("Severity", esc(definition.severity)),
        ("What to do", prose(definition.remedy)),
        ("Shown", f"after it has lasted {delay:g} s" if delay else "at once"),
    ]
    if definition.depends_on:
        links = ", ".join(f'<a href="/conditions/{esc(code)}">{esc(code)}</a>' for code in definition.depends_on)
        facts.append(("Hidden behind", f"{links}, because it follows from it"))
    return pairs(facts)
