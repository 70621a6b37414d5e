"""The catalogue of XIDs: complete, and as bad as the driver's makers say."""

import pytest

from nodeagent.components.health.evidence.sxids import judge_passing, read_sxid
from nodeagent.components.health.evidence.xids import CATALOGUE, DAY, HOUR, Scope, XidClass, XidEntry, find_xid
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.remedies import Remedy

HEALTHY, SUSPECT, UNHEALTHY = Verdict.HEALTHY, Verdict.SUSPECT, Verdict.UNHEALTHY


def test_every_number_up_to_the_newest_is_there() -> None:
    """No number that a driver of today may print is unknown."""
    assert list(CATALOGUE) == list(range(1, 177))


@pytest.mark.parametrize(
    ("number", "verdict", "rule", "scope"),
    [
        (13, HEALTHY, "N", Scope.INSTANCE),
        (31, HEALTHY, "N", Scope.INSTANCE),
        (43, HEALTHY, "N", Scope.INSTANCE),
        (45, HEALTHY, "N", Scope.INSTANCE),
        (48, UNHEALTHY, "R", Scope.GPU),
        (54, UNHEALTHY, "B", Scope.GPU),
        (60, SUSPECT, "W", Scope.GPU),
        (62, UNHEALTHY, "R", Scope.GPU),
        (63, SUSPECT, "R", Scope.GPU),
        (64, UNHEALTHY, "R", Scope.GPU),
        (68, HEALTHY, "N", Scope.INSTANCE),
        (74, UNHEALTHY, "R", Scope.GPU),
        (79, UNHEALTHY, "B", Scope.GPU),
        (92, SUSPECT, "W", Scope.GPU),
        (94, SUSPECT, "R", Scope.INSTANCE),
        (95, UNHEALTHY, "R", Scope.GPU),
        (109, UNHEALTHY, "R", Scope.GPU),
        (119, UNHEALTHY, "R", Scope.GPU),
        (121, HEALTHY, "N", Scope.GPU),
        (144, SUSPECT, "R", Scope.GPU),
        (151, UNHEALTHY, "B", Scope.GPU),
        (154, HEALTHY, "N", Scope.GPU),
        (165, SUSPECT, "S", Scope.GPU),
    ],
)
def test_xid_has_its_verdict_and_its_way_back(number: int, verdict: Verdict, rule: str, scope: Scope) -> None:
    """Application faults leave a device healthy; memory, bus and firmware faults do not."""
    entry = find_xid(number)
    assert (entry.verdict, entry.rule, entry.scope) == (verdict, ReturnRule(rule), scope)


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=str)
def test_every_entry_makes_sense(entry: XidEntry) -> None:
    """A device that left has a way back and a remedy; one that stays healthy needs neither rule nor time."""
    if entry.verdict is HEALTHY:
        assert (entry.rule, entry.quiet_seconds) == (ReturnRule.NEVER_LEFT, 0)
    else:
        assert entry.rule is not ReturnRule.NEVER_LEFT
        assert entry.remedy is not Remedy.NOTHING
    assert (entry.rule is ReturnRule.QUIET_PERIOD) == (entry.quiet_seconds > 0)
    assert entry.meaning.startswith(entry.name)


@pytest.mark.parametrize(("number", "seconds"), [(92, DAY), (157, 7 * DAY), (176, HOUR)])
def test_quiet_periods_are_those_of_the_fault(number: int, seconds: float) -> None:
    """A rate may be over in an hour; a failed retirement is likely to be heard again in days."""
    assert find_xid(number).quiet_seconds == seconds


def test_engines_are_counted_as_the_hardware_counts_them() -> None:
    """Numbers of engines are spread over the table; each says which engine it is."""
    names = {number: find_xid(number).name for number in (39, 85, 126, 135, 68, 105, 142)}
    assert names == {
        39: "copy engine 0 exception",
        85: "copy engine 9 exception",
        126: "copy engine 10 exception",
        135: "copy engine 19 exception",
        68: "video decoder 0 exception",
        105: "JPEG engine 7 exception",
        142: "video encoder 3 exception",
    }


@pytest.mark.parametrize("number", [177, 999])
def test_unknown_number_is_never_dropped(number: int) -> None:
    """What nobody knows asks for attention, and the levels decide."""
    entry = find_xid(number)
    assert (entry.number, entry.xid_class, entry.verdict, entry.rule) == (
        number,
        XidClass.UNKNOWN,
        SUSPECT,
        ReturnRule.LEVELS_CLEAN,
    )


def test_every_remedy_is_an_instruction() -> None:
    """The person who is paged reads what to do, not a code."""
    assert all(" " in remedy.sentence and not remedy.sentence.endswith(".") for remedy in Remedy)


@pytest.mark.parametrize(
    ("number", "is_fatal", "verdict", "rule"),
    [
        (11012, False, Verdict.HEALTHY, "N"),
        (20001, False, Verdict.HEALTHY, "N"),
        (19084, False, Verdict.SUSPECT, "L"),
        (20034, True, Verdict.SUSPECT, "R"),
        (23001, True, Verdict.UNHEALTHY, "B"),
        (99999, True, Verdict.SUSPECT, "R"),
        (99999, False, Verdict.HEALTHY, "N"),
    ],
)
def test_switch_error_has_its_group(number: int, is_fatal: bool, verdict: Verdict, rule: str) -> None:
    """Corrected ones are noted, a link marks, a whole switch takes all out; unknown ones go by the word in the line."""
    reading = read_sxid(number, is_fatal=is_fatal)
    assert (reading.verdict, reading.rule) == (verdict, ReturnRule(rule))


def test_the_end_of_heat_is_no_fault() -> None:
    """10004 says that the switch is too hot, 10005 that it no longer is."""
    assert read_sxid(10004, is_fatal=False).verdict is Verdict.SUSPECT
    assert read_sxid(10005, is_fatal=False).verdict is Verdict.HEALTHY


def test_many_passing_errors_within_an_hour_are_a_bad_link() -> None:
    """Up to ten are retried and forgotten; those of an hour ago count no more."""
    assert judge_passing(range(10), 100.0, HealthSettings()) is None
    reading = judge_passing(range(11), 100.0, HealthSettings())
    assert reading is not None
    assert (reading.verdict, reading.rule, reading.quiet_seconds) == (Verdict.SUSPECT, ReturnRule.QUIET_PERIOD, 3600)
    assert judge_passing(range(11), 3605.0, HealthSettings()) is None
    assert judge_passing([1.0, 2.0], 3.0, HealthSettings(switch_errors_per_hour=1)) is not None
