"""Fault sessions on the page."""

from msgspec.structs import replace

from nodeagent.components.web.page.details import render_path
from nodeagent.components.web.page.overview import render_document
from nodeagent.components.web.page.repairs import CLOSED_SHOWN, render_repairs
from nodeagent.model.repairs import Ending, RepairState, Rung, SessionPlan
from tests.support.nodes import make_view
from tests.support.repairs import make_attempt, make_session
from tests.support.texts.html import Page

PLAN = SessionPlan(
    session=1,
    rung=Rung.REBOOT,
    gpus=(),
    pods=(),
    sentence="would request a reboot; a <budget> says no",
    obstacles=("x",),
)


def test_open_sessions_stand_first_with_their_plans_and_attempts() -> None:
    """At rung service the mark calls for a person; a closed session has its ending."""
    state = RepairState(
        mode="act",
        sessions=(
            make_session(1, rung=Rung.REBOOT, attempts=(make_attempt(), make_attempt(Rung.REBOOT, None))),
            make_session(2, 1, Rung.SERVICE),
            *(replace(make_session(3 + n, 2), ending=Ending.REPAIRED, closed_seconds=5.0) for n in range(CLOSED_SHOWN)),
            replace(make_session(99, 3), ending=Ending.REPAIRED, closed_seconds=5.0),
        ),
        plans=(PLAN,),
    )
    page = render_path("/", replace(make_view(), repairs=state))
    assert page is not None
    text = Page(render_document(page, "v-1")).text
    for piece in ("Fault sessions", "reset: failed", "reboot: under way", PLAN.sentence, "✓ repaired", "mode act"):
        assert piece in text
    html = render_repairs(state, 20.0)
    assert html.index(">1<") < html.index(">2<") < html.index(">3<")
    assert 'class="tag bad"' in html
    assert ">99<" not in html


def test_a_calm_node_says_so_and_one_without_repairs_says_nothing() -> None:
    assert "No GPU needs a repair" in render_repairs(RepairState(mode="observe"), 0.0)
    unsettled = render_repairs(RepairState(mode="observe", unsettled="the findings settle"), 0.0)
    assert "the findings settle" in unsettled
    assert "No GPU needs" not in unsettled
    gone = replace(make_session(), ending=Ending.REMOVED, closed_seconds=5.0)
    assert 'class="tag warn"' in render_repairs(RepairState(mode="observe", sessions=(gone,)), 9.0)
    page = render_path("/", make_view())
    assert page is not None
    assert page.sections["repairs"] == ""
