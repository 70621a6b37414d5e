"""What the driver's reports other than XIDs mean."""

import pytest

from nodeagent.components.health.evidence.reports import judge_report
from nodeagent.model.health import Verdict


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("recovery_action", 1, ("recovery-action", Verdict.UNHEALTHY)),
        ("recovery_action", 0, None),
        ("gpu_lost", 0, ("lost", Verdict.UNHEALTHY)),
        ("unavailable", 0, ("lost", Verdict.UNHEALTHY)),
        ("single_bit_ecc_storm", 0, ("ecc-storm", Verdict.SUSPECT)),
        ("dram_retirement", 0, ("dram-retired", Verdict.SUSPECT)),
        ("dram_retirement_failure", 0, ("dram-retirement-failed", Verdict.UNHEALTHY)),
        ("non_fatal_poison", 0, ("poison", Verdict.SUSPECT)),
        ("fatal_poison", 0, ("poison", Verdict.UNHEALTHY)),
        ("mig_layout", 0, None),
        ("gpu_back", 0, None),
        ("something_new", 0, None),
    ],
)
def test_report_is_a_level_or_nothing(kind: str, data: int, expected: tuple[str, Verdict] | None) -> None:
    """A good report is no finding: only a look may say that all is well."""
    finding = judge_report(kind, data)
    assert (None if finding is None else (finding.key, finding.verdict)) == expected
