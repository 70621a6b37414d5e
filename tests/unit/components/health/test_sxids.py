"""Error numbers of NVSwitches."""

import pytest

from nodeagent.components.health.evidence.sxids import judge_passing, read_sxid
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.health import ReturnRule, Verdict


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
