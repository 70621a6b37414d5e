"""Fault sessions on the page: open sessions with plans, then the last closed sessions; pure."""

from typing import Final

from nodeagent.components.web.page.markup import age, esc, gpu_path, mark, prose, section, table
from nodeagent.model.repairs import Ending, FaultSession, RepairState, Rung

CLOSED_SHOWN: Final = 8
_HEAD: Final = ("Session", "GPUs", "Cause", "Rung", "State", "What is next", "Since")


def render_repairs(repairs: RepairState, now_seconds: float) -> str:
    """A row for each session."""
    plans = {plan.session: plan.sentence for plan in repairs.plans}
    standing = [one for one in repairs.sessions if one.is_open]
    closed = [one for one in repairs.sessions if not one.is_open][:CLOSED_SHOWN]
    rows = [_render_session(one, plans.get(one.number, ""), now_seconds) for one in (*standing, *closed)]
    calm = "" if standing else "<p>No GPU needs a repair that the agent knows of.</p>"
    body = table("Fault sessions", _HEAD, rows) if rows else ""
    unsettled = f"<p>{prose(repairs.unsettled)}</p>" if repairs.unsettled else calm
    mode = f'<p class="small dim">mode {esc(repairs.mode)} · <code>nodeagent repairs explain NUMBER</code></p>'
    return section("repairs", "Repairs", f'<div class="card">{unsettled}{body}{mode}</div>')


def _render_session(session: FaultSession, plan: str, now_seconds: float) -> tuple[str, ...]:
    gpus = "<br>".join(f'<a href="{gpu_path(gpu.uuid)}">GPU {gpu.index}</a>' for gpu in session.gpus)
    since = session.opened_seconds if session.closed_seconds is None else session.closed_seconds
    attempts = "<br>".join(f"{esc(one.rung)}: {esc(one.outcome or 'under way')}" for one in session.attempts)
    return (
        str(session.number),
        gpus,
        f"<code>{esc(session.cause)}</code>",
        esc(session.rung),
        _mark_state(session),
        "<br>".join(filter(None, (attempts, prose(plan)))) or "–",
        age(since, now_seconds),
    )


def _mark_state(session: FaultSession) -> str:
    if session.ending is not None:
        style = "ok" if session.ending in {Ending.REPAIRED, Ending.RECOVERED} else "warn"
        return mark(style, session.ending)
    return mark("bad" if session.rung is Rung.SERVICE else "warn", "open")
