"""Waiting times of pods at admission, prepared claims, devices in published slices, and news for pods; pure.

Waiting are answers to the kubelet, and the journal write before each answer.
"""

from collections import Counter

from nodeagent.components.exporter.exposition import Family, Labels, counter, gauge
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import PodConditionCounts, PodEventCounts, ReceiptCounts
from nodeagent.model.plugin import AdmissionFacts
from nodeagent.model.repairs import Ending, RepairState, Rung
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.upgrades import UpgradePhase, UpgradeState
from nodeagent.model.values import Value


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
        counter(
            "nodeagent_journal_writes_total",
            "Writes to the allocation journal, failed ones included.",
            [((), facts.journal_writes)],
        ),
        counter(
            "nodeagent_journal_failures_total",
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


def build_claim_families(table: ReadyClaims | None, slices: PublishedSlices | None) -> tuple[Family, ...]:
    """All families about claims; no series on a node without claims."""
    claims = table.claims.values() if table is not None else ()
    ready = sum(claim.is_ready for claim in claims)
    states = [((("state", "ready"),), ready), ((("state", "making"),), len(claims) - ready)]
    pool = () if slices is None else (("driver", slices.driver), ("pool", slices.pool))

    def tell(name: str, text: str, value: int) -> Family:
        return gauge(name, text, [] if slices is None else [(pool, value)])

    told = slices or PublishedSlices(driver="", pool="")
    return (
        gauge(
            "nodeagent_claims",
            "Claims that have devices of this node, by state: ready, or making while something is made for them.",
            states if slices is not None else [],
        ),
        tell("nodeagent_slices", "Slices in which schedulers are told of this node's devices.", told.slices),
        tell("nodeagent_slices_generation", "Generation of the pool of slices.", told.generation),
        tell(
            "nodeagent_slices_written", "1 while the API server has the slices that it should have.", not told.problem
        ),
        tell(
            "nodeagent_slice_devices", "Devices that claims can have, those that are kept from pods too.", told.devices
        ),
        tell("nodeagent_slice_devices_tainted", "Those of them that pods are kept away from.", len(told.tainted)),
    )


def build_signal_families(
    counts: PodEventCounts | None, conditions: PodConditionCounts | None, receipts: ReceiptCounts | None
) -> tuple[Family, ...]:
    """The families about what pods are told of faults; no series where nothing of the kind is written."""
    told = counts or PodEventCounts()
    return (
        counter(
            "nodeagent_signal_events_total",
            "Events on pods about faults of their GPUs, by outcome: requests written and failed, and events dropped.",
            _count_outcomes(counts, "written", "failed", "dropped"),
        ),
        gauge(
            "nodeagent_signal_events_waiting",
            "Events on pods about faults of their GPUs that are yet to be written.",
            [((), told.waiting)] if counts is not None else [],
        ),
        counter(
            "nodeagent_signal_conditions_total",
            "Conditions of pods about faults of their GPUs, by outcome: requests written and failed, and"
            " conditions dropped.",
            _count_outcomes(conditions, "written", "failed", "dropped"),
        ),
        counter(
            "nodeagent_signal_receipts_total",
            "Receipts in containers, by outcome: each is written again for each change, and a write that failed is"
            " made again.",
            _count_outcomes(receipts, "written", "failed"),
        ),
    )


def _count_outcomes(counts: Value | None, *outcomes: str) -> list[tuple[Labels, float]]:
    return [((("outcome", each),), getattr(counts, each)) for each in outcomes] if counts is not None else []


def build_repair_families(state: RepairState | None) -> tuple[Family, ...]:
    """The families about fault sessions and their slots; no series of what is off."""
    told = state or RepairState()
    standing = [session for session in told.sessions if session.is_open]
    at_rung = {rung: sum(session.rung is rung for session in standing) for rung in Rung}
    attempts = (attempt for session in told.sessions for attempt in session.attempts if attempt.is_own)
    ended = sorted((one for one in attempts if one.outcome is not None), key=lambda one: one.began_seconds)
    counts = Counter((one.rung, str(one.outcome)) for one in ended)
    lasted = {one.rung: max(0.0, (one.ended_seconds or 0.0) - one.began_seconds) for one in ended}
    return (
        gauge(
            "nodeagent_repair_sessions",
            "Open fault sessions, by the rung of the ladder on which they stand.",
            [((("rung", rung),), count) for rung, count in at_rung.items()] if state is not None else [],
        ),
        counter(
            "nodeagent_repair_sessions_opened_total",
            "Fault sessions opened since the agent started.",
            [((), told.opened)] if state is not None else [],
        ),
        counter(
            "nodeagent_repair_sessions_closed_total",
            "Fault sessions closed since the agent started, by how they ended.",
            [((("ending", each),), told.closed.get(each, 0)) for each in Ending] if state is not None else [],
        ),
        gauge(
            "nodeagent_repair_session_opened_timestamp_seconds",
            "When each open fault session was opened, Unix time, with its cause and rung.",
            [
                ((("session", str(one.number)), ("cause", one.cause), ("rung", one.rung)), one.opened_seconds)
                for one in standing
            ],
        ),
        gauge(
            "nodeagent_repair_attempts",
            "Ended attempts of the fault sessions that the node remembers, for seven days, by rung and outcome.",
            [((("rung", rung), ("outcome", outcome)), count) for (rung, outcome), count in sorted(counts.items())],
        ),
        gauge(
            "nodeagent_repair_attempt_seconds",
            "How long the newest ended attempt of each rung took, its proof included.",
            [((("rung", rung),), seconds) for rung, seconds in lasted.items()],
        ),
        gauge(
            "nodeagent_repair_settled",
            "1 once the findings after the start have settled, so that fault sessions follow them.",
            [((), not told.unsettled)] if state is not None else [],
        ),
        gauge(
            "nodeagent_repair_slot_waiting",
            "1 while a fault session waits for its slots of `repairs.slots`; no series where a repair needs none.",
            [((), told.slots.is_waiting)] if told.slots is not None else [],
        ),
        counter(
            "nodeagent_repair_slot_refusals_total",
            "Questions for slots that were refused or had no answer since the agent started.",
            [((), told.slots.refused)] if told.slots is not None else [],
        ),
        gauge(
            "nodeagent_repair_slots_allowed",
            "Slots of each domain that may be taken, while a session waits or acts; 0 for a domain that is stopped.",
            [((("domain", name),), count) for name, count in told.slots.allowed.items()] if told.slots else [],
        ),
    )


def build_upgrade_families(state: UpgradeState | None) -> tuple[Family, ...]:
    """Upgrades of the driver; empty while `driver.upgrade` is off."""
    told = state or UpgradeState()
    under_way, lasted = told.under_way, told.last_seconds
    phases = [((("phase", phase),), under_way is not None and under_way.phase is phase) for phase in UpgradePhase]
    return (
        gauge(
            "nodeagent_driver_upgrade_phase",
            "1 for the phase of the upgrade of the driver that is under way; 0 for all without an upgrade.",
            phases if state is not None else [],
        ),
        gauge(
            "nodeagent_driver_upgrade_seconds",
            "How long the last upgrade of the driver that was done took, from the closing of the GPUs to the proof.",
            [((), lasted)] if lasted is not None else [],
        ),
    )
