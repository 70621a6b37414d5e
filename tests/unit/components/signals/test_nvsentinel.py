"""What NVSentinel is told: the words of an event, the action, and what is news."""

import pytest
from msgspec.structs import replace

from nodeagent.components.signals.nvsentinel import (
    MESSAGE_MAX,
    ReportedFaults,
    choose_action,
    decode_told,
    encode_told,
    plan_told,
    render_end,
    render_event,
)
from nodeagent.model.health import ReturnRule
from nodeagent.model.repairers import NvsentinelAction, NvsentinelEvent
from nodeagent.rules.signals import Severity
from tests.unit.components.signals.test_node_conditions import make_fault, with_faults

FAULT = make_fault()
KEY = "GPU-3 xid-79"


def plan(
    table: ReportedFaults, *found: object, is_acted_on: bool = False, unknown: tuple[str, ...] = ()
) -> ReportedFaults:
    return plan_told(table, with_faults(*found, unknown=unknown), 50.0, is_acted_on=is_acted_on)  # type: ignore[arg-type]


def take_all(table: ReportedFaults) -> ReportedFaults:
    for key, told in table.due:
        table = table.note_taken(key, told)
    return table


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        (ReturnRule.RESET, NvsentinelAction.COMPONENT_RESET),
        (ReturnRule.POWER_CYCLE, NvsentinelAction.RESTART_BM),
        *((rule, NvsentinelAction.CONTACT_SUPPORT) for rule in (ReturnRule.SERVICE, ReturnRule.LEVELS_CLEAN)),
    ],
)
def test_a_critical_fault_asks_for_what_ends_it(rule: ReturnRule, action: NvsentinelAction) -> None:
    """And where nothing that NVSentinel can do is known to end it, for a person; a warning asks for nothing."""
    assert choose_action(Severity.CRITICAL, rule) is action
    assert choose_action(Severity.WARN, rule) is NvsentinelAction.NONE


def test_a_reset_names_the_gpu_by_its_uuid() -> None:
    """Without it NVSentinel restarts the node instead."""
    assert render_event(FAULT, is_acted_on=False) == NvsentinelEvent(
        check="NodeagentXid79",
        entities=(("GPU", "3"), ("PCI", "0000:13:00.0"), ("GPU_UUID", "GPU-3")),
        error_code="79",
        message="GPU 3 GPU-3 at 0000:13:00.0 has xid-79: it is ill",
        action=NvsentinelAction.COMPONENT_RESET,
        is_fatal=True,
        at_seconds=1.0,
    )
    long = render_event(make_fault("remap-failed", reason="x" * 2000), is_acted_on=True)
    assert (long.check, long.error_code, len(long.message)) == ("NodeagentRemapFailed", "remap-failed", MESSAGE_MAX)
    assert long.is_acted_on
    assert len(render_end(long, 2.0).message) == MESSAGE_MAX


def test_an_end_is_of_the_same_check_and_entities() -> None:
    fault = render_event(FAULT, is_acted_on=True)
    end = render_end(fault, 9.0)
    assert (end.check, end.entities, end.is_acted_on) == (fault.check, fault.entities, True)
    assert (end.is_healthy, end.is_fatal, end.action) == (True, False, NvsentinelAction.NONE)
    assert (end.message, end.at_seconds, end.error_code) == (f"no longer: {fault.message}", 9.0, "")


def test_what_goes_on_is_no_news() -> None:
    """Whatever the words, and wherever the GPU is by now; an end that was taken is forgotten."""
    told = take_all(plan(ReportedFaults(), FAULT))
    assert told.due == ()
    assert plan(told, replace(FAULT, reason="otherwise", index=7)) == told
    assert plan(told, unknown=("GPU-3",)) == told
    ended = plan(told)
    assert [event.event.is_healthy for _, event in ended.due] == [True]
    assert plan(ended) == ended
    assert take_all(ended) == ReportedFaults()


def test_another_action_is_news_with_the_entities_that_were_told() -> None:
    """A GPU with another index by then would never be ended otherwise."""
    told = take_all(plan(ReportedFaults(), FAULT))
    worse = plan(told, replace(FAULT, rule=ReturnRule.SERVICE, index=7))
    ((key, renewed),) = worse.due
    assert (key, renewed.event.action) == (KEY, NvsentinelAction.CONTACT_SUPPORT)
    assert renewed.event.entities == render_event(FAULT, is_acted_on=False).entities


def test_a_fault_that_comes_back_before_its_end_was_taken_is_told_again() -> None:
    told = take_all(plan(ReportedFaults(), FAULT))
    again = plan(plan(told), FAULT)
    ((_, renewed),) = again.due
    assert not renewed.event.is_healthy


def test_to_be_acted_on_is_news_and_to_be_stored_alone_is_none() -> None:
    """What was acted on stays so until it ends."""
    stored = take_all(plan(ReportedFaults(), FAULT))
    acted = take_all(plan(stored, FAULT, is_acted_on=True))
    assert acted.told[KEY].event.is_acted_on
    assert plan(acted, FAULT) == acted
    worse = plan(acted, replace(FAULT, rule=ReturnRule.SERVICE))
    assert worse.told[KEY].event.is_acted_on


def test_an_answer_about_an_older_event_is_no_answer_about_the_newer() -> None:
    """The fault ended while its event was under way."""
    table = plan(ReportedFaults(), FAULT)
    ((key, sent),) = table.due
    ended = plan(table)
    assert ended.note_taken(key, sent) == ended
    assert [each.event.is_healthy for _, each in ended.due] == [True]


def test_the_table_survives_its_file() -> None:
    table = plan(ReportedFaults(), FAULT, make_fault("hot", Severity.WARN))
    assert decode_told(encode_told(table)) == table
