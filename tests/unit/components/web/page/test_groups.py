"""Conditions of one kind are told once, and each of them can be reached."""

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers.table import Layout
from nodeagent.cli.gpu.view import list_troubles
from nodeagent.cli.node.status_view import render_status
from nodeagent.components.web.api.records import ConditionRecord, StateRecord
from nodeagent.components.web.health_text import render_readyz
from nodeagent.components.web.page.groups import group_conditions
from nodeagent.components.web.page.sections import render_condition_list
from tests.support.nodes import make_rich_state


def conditions(count: int, code: str = "allocations-differ", since: float = 90.0) -> tuple[ConditionRecord, ...]:
    return tuple(
        ConditionRecord(
            code=code,
            severity="warning",
            title="they differ",
            remedy="mend it",
            since_seconds=since + number,
            key=f"key-{number}",
            detail=f"device {number} is not known",
        )
        for number in range(count)
    )


def make_state(count: int) -> StateRecord:
    return StateRecord(
        api="v1",
        version="1",
        node="n",
        gpu_source="nvml",
        pid=1,
        started_seconds=0.0,
        time_seconds=100.0,
        verdict="attention",
        sentence="they differ",
        ready=True,
        gates=(),
        components=(),
        conditions=conditions(count),
    )


def test_one_group_for_each_kind_in_the_order_of_the_first() -> None:
    groups = group_conditions((*conditions(2), *conditions(1, "other", since=5.0), *conditions(1, since=1.0)))
    assert [(group.first.code, len(group.members), group.since_seconds) for group in groups] == [
        ("allocations-differ", 3, 1.0),
        ("other", 1, 5.0),
    ]


@pytest.mark.parametrize(("count", "named"), [(1, 1), (3, 3), (4, 4), (5, 3), (512, 3)])
def test_the_first_few_stand_by_name(count: int, named: int) -> None:
    """And none is lost: the rest is the rest."""
    (group,) = group_conditions(conditions(count))
    shown, rest = group.split()
    assert (len(shown), (*shown, *rest)) == (named, group.members)
    assert group.split(None) == (group.members, ())


def test_a_status_of_many_stays_short_and_says_where_the_rest_is() -> None:
    """Nine lines for 512 of a kind; `--all` lists each."""
    text = render_status(make_state(512), Layout(200), colour=False)
    assert len(text.splitlines()) < 10
    assert "512 times: they differ (since 10 s, allocations-differ)" in text
    assert "and 509 more: `nodeagent status --all` lists them" in text
    assert text.count("do:") == 1
    every = render_status(make_state(512), Layout(200), colour=False, is_whole=True)
    assert all(f"device {number} is not known" in every for number in range(512))


def test_the_page_folds_the_rest_away() -> None:
    """Each has its anchor, in a part that opens."""
    html = render_condition_list(conditions(512), 100.0)
    assert html.count("What to do") == 1
    head, _, folded = html.partition("<details>")
    assert (head.count("is not known"), folded.count("is not known")) == (3, 509)
    assert "and 509 more" in folded
    assert "<details>" not in render_condition_list(conditions(4), 100.0)


def test_readyz_and_gpu_health_count_too() -> None:
    """Their lines name where the rest is."""
    state = replace(make_rich_state(), ready=True, gates=(), components=(), conditions=tuple(conditions(512)))
    text = render_readyz(state)
    assert "[!] warning allocations-differ 509 more, all in /api/v1/conditions" in text
    assert len(text.splitlines()) == 6
    troubles = "\n".join(list_troubles(conditions(8)))
    assert troubles.count("do:") == 1
    assert "and 5 more: `nodeagent status --all` lists them" in troubles
