"""What pods wait for, as metrics; the parsers of prometheus-client are the judge."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.components.exporter.exposition import (
    OPENMETRICS_END,
    join_openmetrics,
    render_exposition,
    render_families,
)
from nodeagent.components.exporter.families.admission import build_admission_families
from nodeagent.model.plugin import AdmissionFacts, CallFacts, Distribution

FACTS = AdmissionFacts(
    calls=(
        CallFacts(
            method="Allocate",
            resource="nvidia.com/gpu",
            outcome="ok",
            durations=Distribution(bounds=(0.001, 1.0), counts=(3, 1, 2), sum=12.5),
        ),
    ),
    journal_writes=7,
    journal_failures=1,
    journal_syncs=Distribution(bounds=(0.001,), counts=(5, 0), sum=0.0025),
)


def test_buckets_count_everything_up_to_their_bound() -> None:
    """Read by Prometheus' own parser, each bucket holds those below it, and the last all."""
    families = {
        family.name: family
        for family in text_string_to_metric_families(render_exposition(build_admission_families(FACTS)).decode())
    }
    calls = families["nodeagent_kubelet_call_seconds"]
    assert calls.type == "histogram"
    assert {sample.labels["le"]: sample.value for sample in calls.samples if sample.name.endswith("_bucket")} == {
        "0.001": 3,
        "1.0": 4,
        "+Inf": 6,
    }
    rest = {sample.name: sample for sample in calls.samples if not sample.name.endswith("_bucket")}
    assert rest["nodeagent_kubelet_call_seconds_count"].value == 6
    assert rest["nodeagent_kubelet_call_seconds_sum"].value == 12.5
    assert rest["nodeagent_kubelet_call_seconds_sum"].labels == {
        "call": "Allocate",
        "resource": "nvidia.com/gpu",
        "result": "ok",
    }
    assert families["nodeagent_journal_writes"].samples[0].value == 7
    assert families["nodeagent_journal_failures"].samples[0].value == 1


def test_openmetrics_has_them_as_histograms_too() -> None:
    """The stricter parser takes buckets, sums and counts without complaint."""
    text = (join_openmetrics(render_families(build_admission_families(FACTS))) + OPENMETRICS_END).decode()
    parsed = parse_openmetrics(text)  # type: ignore[no-untyped-call]  # the library has no types for it
    kinds = {family.name: family.type for family in parsed}
    assert kinds["nodeagent_kubelet_call_seconds"] == kinds["nodeagent_journal_sync_seconds"] == "histogram"
    assert kinds["nodeagent_journal_writes"] == "counter"


def test_a_question_never_asked_has_no_series() -> None:
    """Absence is not zero: without calls there is no such family."""
    quiet = AdmissionFacts(calls=(), journal_writes=0, journal_failures=0, journal_syncs=FACTS.journal_syncs)
    assert b"kubelet_call" not in render_exposition(build_admission_families(quiet))
