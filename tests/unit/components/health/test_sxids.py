"""Error numbers of NVSwitches."""

import pytest

from nodeagent.components.health.sxids import read_sxid
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
