"""What pods wait for, as metrics; the parsers of prometheus-client are the judge."""

from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.components.exporter.exposition import (
    OPENMETRICS_END,
    join_openmetrics,
    render_exposition,
    render_families,
)
from nodeagent.components.exporter.families.admission import (
    build_admission_families,
    build_claim_families,
    build_repair_families,
    build_signal_families,
    build_upgrade_families,
)
from nodeagent.components.exporter.families.gpus import (
    build_cordon_families,
    build_mig_families,
    build_mps_families,
    build_proof_families,
)
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import PodConditionCounts, PodEventCounts, ReceiptCounts
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.mps import MpsClient, MpsPhase, MpsState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.plugin import AdmissionFacts, CallFacts, Distribution
from nodeagent.model.proof import GIVEN_UP, GpuProofs, ProofVerdict
from nodeagent.model.repairs import Ending, RepairState, Rung, SlotUse
from nodeagent.model.slices import PublishedSlices
from nodeagent.model.upgrades import UpgradeEnding, UpgradePhase, UpgradeState
from tests.support.fractions import make_offering
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node
from tests.support.mps import daemon_of
from tests.support.repairs import make_attempt, make_failed, make_passed, make_session, make_upgrade
from tests.support.texts.exposition import read_text
from tests.unit.components.exporter.builders import find_value

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


SLICES = PublishedSlices(driver="d", pool="n", generation=7, slices=2, devices=9, tainted=("gpu-0",))


def claim(uid: str, *, is_ready: bool) -> PreparedClaim:
    return PreparedClaim(uid=uid, namespace="ns", name=uid, devices=(), since_seconds=0.0, is_ready=is_ready)


def test_claims_are_counted_by_state_and_slices_by_pool() -> None:
    book = ReadyClaims(claims={uid: claim(uid, is_ready=uid != "c") for uid in "abc"})
    claims, *told = build_claim_families(book, SLICES)
    assert [(dict(labels), value) for labels, value in claims.samples] == [
        ({"state": "ready"}, 2),
        ({"state": "making"}, 1),
    ]
    assert {family.name: value for family in told for _, value in family.samples} == {
        "nodeagent_slices": 2,
        "nodeagent_slices_generation": 7,
        "nodeagent_slices_written": 1,
        "nodeagent_slice_devices": 9,
        "nodeagent_slice_devices_tainted": 1,
    }
    assert all(dict(labels) == {"driver": "d", "pool": "n"} for family in told for labels, _ in family.samples)


def test_slices_that_could_not_be_written_are_told() -> None:
    """As a number, so that an alert can be made of it."""
    broken = PublishedSlices(driver="d", pool="n", problem="forbidden")
    written = next(one for one in build_claim_families(None, broken) if one.name == "nodeagent_slices_written")
    assert [value for _, value in written.samples] == [0]


def test_a_node_that_serves_no_claims_has_no_series() -> None:
    assert all(not family.samples for family in build_claim_families(ReadyClaims(), None))


def test_what_pods_are_told_is_counted_by_outcome() -> None:
    """On a node that writes nothing of the kind there are no series."""
    events, waiting, conditions, receipts = build_signal_families(
        PodEventCounts(written=5, failed=2, dropped=1, waiting=3),
        PodConditionCounts(written=4, dropped=6),
        ReceiptCounts(written=7, failed=8),
    )
    assert [value for _, value in conditions.samples] == [4, 0, 6]
    assert [(dict(labels)["outcome"], value) for labels, value in receipts.samples] == [("written", 7), ("failed", 8)]
    assert [(dict(labels)["outcome"], value) for labels, value in events.samples] == [
        ("written", 5),
        ("failed", 2),
        ("dropped", 1),
    ]
    assert [value for _, value in waiting.samples] == [3]
    assert all(not family.samples for family in build_signal_families(None, None, None))


def test_a_layout_and_its_change_are_shown() -> None:
    """With what each GPU is cut into; a whole GPU has no series of devices."""
    change = GpuChange(gpu=gpu_uuid(1), index=1, wanted="MIG off", doing="waits", done=3)
    state = MigState(layout="lab", origin="me", standing="pending", changes=(change,))
    inventory = Inventory(generation=1, gpus=(make_gpu(0, mig=["1g.10gb", "1g.10gb", "3g.40gb"]), make_gpu(1)))
    asked, changing, devices = build_mig_families(state, inventory)
    assert [(dict(labels), value) for labels, value in asked.samples] == [({"layout": "lab", "standing": "pending"}, 1)]
    assert [(dict(labels)["wanted"], value) for labels, value in changing.samples] == [("MIG off", 3)]
    assert [(dict(labels)["profile"], value) for labels, value in devices.samples] == [("1g.10gb", 2), ("3g.40gb", 1)]


def test_nothing_asked_for_is_nothing_shown() -> None:
    assert all(not family.samples for family in build_mig_families(MigState(), None))


def test_each_daemon_says_whether_it_is_ready_and_who_works() -> None:
    """Without daemons there is no series."""
    clients = (MpsClient(pid=1), MpsClient(pid=2))
    state = MpsState(daemons=(daemon_of(gpu_uuid(0), clients=clients), daemon_of(gpu_uuid(1), MpsPhase.BROKEN)))
    series = read_text(render_exposition(build_mps_families(state)).decode())
    first, second = ({"daemon": str(gpu_uuid(index)), "owner": "nvidia.com/gpu"} for index in range(2))
    assert find_value(series, "nodeagent_mps_daemon_ready", **first) == 1
    assert find_value(series, "nodeagent_mps_daemon_ready", **second) == 0
    assert find_value(series, "nodeagent_mps_clients", **first) == 2
    assert find_value(series, "nodeagent_mps_daemon_starts_total", **second) == 1
    assert not any(family.samples for family in build_mps_families(MpsState()))


def test_a_cordoned_gpu_is_a_one() -> None:
    """Once for a GPU, whoever gave the cordons; the other GPUs are zeros, so that an alert can count."""
    cordon = Cordon(gpu=gpu_uuid(1), source=CordonSource.COMMAND, named="1", reason="fan")
    modes = tuple(
        GpuAllocationMode(
            gpu=gpu_uuid(index),
            index=index,
            address=make_gpu(index).pci.address,
            door=AllocationMode.WHOLE,
            wanted=AllocationMode.WHOLE,
            reason="the default",
            is_open=not index,
            cordons=(cordon, cordon) if index else (),
        )
        for index in range(2)
    )
    series = read_text(render_exposition(build_cordon_families(Offering(doors=modes))).decode())
    for index in range(2):
        labels = {"gpu": str(index), "UUID": str(gpu_uuid(index))}
        assert find_value(series, "nodeagent_gpu_cordoned", **labels) == index
        assert find_value(series, "nodeagent_signal_brake_closings", **labels) == 0


def test_a_braked_gpu_counts_its_closings_until_it_is_proved() -> None:
    """Closed, to be tried, and closed by a person beside the brake."""
    braked = Cordon(gpu=gpu_uuid(0), source=CordonSource.BRAKE, named="0", until_seconds=1.0, closings=3)
    person = Cordon(gpu=gpu_uuid(0), source=CordonSource.COMMAND, named="0")
    mode = make_offering(make_inventory([make_gpu(0)])).doors[0]
    labels = {"gpu": "0", "UUID": str(gpu_uuid(0))}
    for changed, trial in (
        (replace(mode, is_open=False, cordons=(person, braked)), 0),
        (replace(mode, trial=braked), 1),
    ):
        series = read_text(render_exposition(build_cordon_families(Offering(doors=(changed,)))).decode())
        assert find_value(series, "nodeagent_signal_brake_closings", **labels) == 3
        assert find_value(series, "nodeagent_signal_brake_trial", **labels) == trial


def test_fault_sessions_are_counted_by_rung_and_ending() -> None:
    """Each rung has its series, one without a session too; with repairs off there is none."""
    state = RepairState(
        mode="observe", sessions=(make_session(), make_session(2, 1, Rung.SERVICE)), opened=3, closed={Ending.JOINED: 1}
    )
    standing, opened, closed, _, _, _, settled, *slots = build_repair_families(state)
    assert {dict(labels)["rung"]: value for labels, value in standing.samples} == {
        **dict.fromkeys(Rung, 0),
        Rung.RESET: 1,
        Rung.SERVICE: 1,
    }
    assert list(opened.samples) == [((), 3)]
    assert {dict(labels)["ending"]: value for labels, value in closed.samples} == {
        **dict.fromkeys(Ending, 0),
        Ending.JOINED: 1,
    }
    assert list(settled.samples) == [((), True)]
    assert [list(family.samples) for family in build_repair_families(None)] == [[]] * 10
    assert [list(family.samples) for family in slots] == [[]] * 3


def test_slots_are_told_where_a_repair_needs_them() -> None:
    use = SlotUse(allowed={"rack r1": 0, "cluster": 2}, refused=4, is_waiting=True)
    *_, waiting, refusals, allowed = build_repair_families(RepairState(mode="act", slots=use))
    assert (list(waiting.samples), list(refusals.samples)) == ([((), True)], [((), 4)])
    assert {dict(labels)["domain"]: value for labels, value in allowed.samples} == {"rack r1": 0, "cluster": 2}


def test_an_upgrade_of_the_driver_has_its_phase_and_the_last_one_its_length() -> None:
    done = make_upgrade(UpgradePhase.RESTORE, ending=UpgradeEnding.DONE, ended_seconds=240.0)
    phase, lasted = build_upgrade_families(UpgradeState(upgrades=(make_upgrade(number=2), done)))
    assert {dict(labels)["phase"]: value for labels, value in phase.samples} == {
        **dict.fromkeys(UpgradePhase, False),
        UpgradePhase.DRAIN: True,
    }
    assert list(lasted.samples) == [((), 240.0)]


def test_an_open_session_tells_its_age_and_attempts_their_ends_and_seconds() -> None:
    """Of a rung the newest attempt counts; reboots of somebody else, and attempts under way, have no end of ours."""
    old, new = (
        replace(make_attempt(began=began), ended_seconds=began + took) for began, took in ((10.0, 90.0), (200.0, 12.0))
    )
    others = (replace(new, is_own=False, rung=Rung.REBOOT), make_attempt(Rung.REBOOT, None))
    closed = replace(make_session(2, attempts=(new, *others)), ending=Ending.REPAIRED)
    state = RepairState(mode="act", sessions=(make_session(attempts=(old,)), closed))
    series = read_text(render_exposition(build_repair_families(state)).decode())
    assert find_value(series, "nodeagent_repair_attempt_seconds", rung="reset") == 12
    assert find_value(series, "nodeagent_repair_attempts", rung="reset", outcome="failed") == 2
    opened = "nodeagent_repair_session_opened_timestamp_seconds"
    assert find_value(series, opened, session="1", cause="xid-119", rung="reset") == 0


def test_a_proven_gpu_has_the_time_and_a_failed_one_is_told_as_such() -> None:
    """Of GPUs that the node has; without proofs there is no series."""
    proofs = GpuProofs(
        gpus={gpu_uuid(0): make_passed(1e9), gpu_uuid(1): make_failed(), gpu_uuid(9): make_passed()},
        counts={GIVEN_UP: 2, ProofVerdict.PASSED: 1},
    )
    proven, failed, ended = build_proof_families(proofs, make_node(3))
    first = {"gpu": "0", "UUID": gpu_uuid(0)}
    assert [(dict(labels), value) for labels, value in proven.samples] == [(first | {"level": "quick"}, 1e9)]
    assert [(dict(labels)["gpu"], value) for labels, value in failed.samples] == [("0", 0), ("1", 1)]
    ends = {"passed": 1, "failed": 0, "could not test": 0, "given up": 2}
    assert {dict(labels)["end"]: value for labels, value in ended.samples} == ends
    assert [list(family.samples) for family in build_proof_families(None, None)] == [[]] * 3
