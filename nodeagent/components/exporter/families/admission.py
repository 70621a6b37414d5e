"""Waiting times of pods at admission: answers to the kubelet, and the journal write before each answer.

Pure.
"""

from nodeagent.components.exporter.serving.exposition import Family, make_family
from nodeagent.model.admission import AdmissionFacts


def build_admission_families(facts: AdmissionFacts) -> tuple[Family, ...]:
    """The metrics of admissions, in a fixed order."""
    return (
        Family(
            name="nodeagent_kubelet_call_seconds",
            type="histogram",
            help="Time from a question of the kubelet to its answer, the journal's write included.",
            distributions=tuple(
                ((("call", one.method), ("resource", one.resource), ("result", one.outcome)), one.durations)
                for one in facts.calls
            ),
        ),
        make_family(
            "nodeagent_journal_writes_total",
            "counter",
            "Writes to the allocation journal, failed ones included.",
            [((), facts.journal_writes)],
        ),
        make_family(
            "nodeagent_journal_failures_total",
            "counter",
            "Failures of the allocation journal's disk.",
            [((), facts.journal_failures)],
        ),
        Family(
            name="nodeagent_journal_sync_seconds",
            type="histogram",
            help="Time that the disk took to make a write to the allocation journal durable.",
            distributions=(((), facts.journal_syncs),),
        ),
    )
