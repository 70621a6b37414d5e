"""Whom an event hits."""

import pytest

from nodeagent.components.health.evidence.findings import find_hit
from nodeagent.components.health.evidence.reports import judge_report
from nodeagent.components.health.evidence.xids import Scope
from nodeagent.model.health import Verdict
from nodeagent.model.proof import PROOF_FAILED
from tests.support.gpus import gpu_uuid, make_gpu, mig_uuid

GPU = make_gpu(0, mig=["1g.10gb", "1g.10gb"])
"""Its devices have the GPU instances 7 and 8, each with the compute instance 0."""


@pytest.mark.parametrize(
    ("scope", "gpu_instance", "compute_instance", "hit"),
    [
        (Scope.INSTANCE, 7, 0, (mig_uuid(0, 0),)),
        (Scope.INSTANCE, 8, None, (mig_uuid(0, 1),)),
        (Scope.INSTANCE, None, None, (gpu_uuid(0),)),
        (Scope.INSTANCE, 9, 0, (gpu_uuid(0),)),
        (Scope.INSTANCE, 7, 3, (gpu_uuid(0),)),
        (Scope.GPU, 7, 0, (gpu_uuid(0),)),
    ],
)
def test_event_marks_exactly_what_it_hits(
    scope: Scope, gpu_instance: int | None, compute_instance: int | None, hit: tuple[str, ...]
) -> None:
    """An instance where it is named and exists; a GPU with all its devices otherwise."""
    assert find_hit(GPU, scope, gpu_instance, compute_instance) == hit


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
        (PROOF_FAILED, 0, ("proof-failed", Verdict.UNHEALTHY)),
        ("mig_layout", 0, None),
        ("gpu_back", 0, None),
        ("something_new", 0, None),
    ],
)
def test_report_is_a_level_or_nothing(kind: str, data: int, expected: tuple[str, Verdict] | None) -> None:
    """A good report is no finding: only a look may say that all is well."""
    finding = judge_report(kind, data)
    assert (None if finding is None else (finding.key, finding.verdict)) == expected
