"""Laws of health that must hold whatever happens in whatever order."""

from typing import Any, TypeAlias

import hypothesis.strategies as st
from hypothesis import given

from nodeagent.components.health.evidence.reports import judge_report
from nodeagent.components.health.evidence.xids import CATALOGUE
from nodeagent.components.health.judge import Judge
from nodeagent.components.health.records import VERDICT_RANK, StoredVerdicts
from nodeagent.components.health.verdict_store import decode_verdicts, encode_verdicts, resume_verdicts
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.health import ReturnRule, Verdict
from nodeagent.model.telemetry import NodeSample
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.health import make_sample, moment

NODE = make_inventory([make_gpu(0), make_gpu(1, mig=["1g.10gb", "1g.10gb"])])
POLICIES = (
    HealthSettings(),
    HealthSettings(profile="plugin"),
    HealthSettings(enable_xids=("all",)),
    HealthSettings(xid_policy={"memory": "suspect", "13": "unhealthy"}),
)
TEXTS = (
    "",
    "Contained: x. RST: Yes, D-RST: No",
    "0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0",
    "0x0 (None) 0x1 (GPU Reset Required)",
    "0x2 (Node Reboot Required) 0x0 (None)",
)

xids = st.builds(
    XidReported,
    gpu=st.sampled_from([gpu_uuid(0), gpu_uuid(1), gpu_uuid(7)]),
    xid=st.one_of(st.sampled_from(sorted(CATALOGUE)), st.integers(0, 99_999)),
    gpu_instance_id=st.sampled_from([None, 7, 8, 9]),
    compute_instance_id=st.sampled_from([None, 0, 1]),
    message=st.sampled_from(TEXTS),
)
reports = st.builds(
    GpuEventReported,
    gpu=st.sampled_from([gpu_uuid(0), gpu_uuid(1)]),
    kind=st.sampled_from(["recovery_action", "gpu_lost", "gpu_back", "fatal_poison", "dram_retirement", "new"]),
    data=st.integers(0, 6),
)
samples: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "recovery_action": st.sampled_from([None, 0, 1, 2, 3]),
        "ecc_uncorrected_volatile": st.integers(0, 3),
        "remapped_rows_pending": st.booleans(),
        "remapped_rows_failed": st.booleans(),
        "nvlinks_active": st.integers(0, 18),
        "pcie_replay_count": st.integers(0, 1000),
        "clock_event_reasons": st.sampled_from([0, 8, 0x40]),
        "slowdown_margin_celsius": st.integers(-3, 3),
        "lost": st.sampled_from(["", "", "", "fell off the bus"]),
        "gpu_temperature_celsius": st.sampled_from([None, 40]),
    },
)
drivers = st.builds(DriverState, phase=st.sampled_from(DriverPhase), driver_version=st.sampled_from(["580.1", "590.1"]))
Evidence: TypeAlias = XidReported | GpuEventReported | DriverState | dict[str, Any]
evidence: st.SearchStrategy[list[Evidence]] = st.lists(st.one_of(xids, reports, samples, drivers), max_size=25)


class Course:
    """A judge that is given evidence, five seconds apart."""

    def __init__(self, policy: HealthSettings) -> None:
        self.judge, self.policy, self.at = Judge(StoredVerdicts(boot_id="boot")), policy, 0.0
        self.judge.note_inventory(NODE)

    def take(self, one: Evidence) -> None:
        self.at += 5
        match one:
            case XidReported():
                self.judge.note_xid(one, moment(self.at), self.policy)
            case GpuEventReported():
                finding = judge_report(one.kind, one.data)
                if finding is not None:
                    self.judge.note_finding(one.gpu, finding, moment(self.at))
            case DriverState():
                self.judge.note_driver(one)
            case dict():
                gpus = tuple(make_sample(gpu.index, **one) for gpu in NODE.gpus)
                self.judge.note_sample(NodeSample(time_seconds=self.at, gpus=gpus), moment(self.at), HealthSettings())

    def verdicts(self) -> dict[str, Verdict]:
        report = self.judge.report(unknown_after=3, watched=True, wall=moment(self.at).wall)
        return {device.device: device.verdict for device in report.devices}


def is_never_better(before: dict[str, Verdict], after: dict[str, Verdict]) -> bool:
    return all(VERDICT_RANK[after[device]] >= VERDICT_RANK[before[device]] for device in before)


@given(evidence, st.one_of(xids, reports), st.sampled_from(POLICIES))
def test_an_event_never_makes_a_device_better(
    past: list[Evidence], event: XidReported | GpuEventReported, policy: HealthSettings
) -> None:
    """Whatever was before: only a look may bring a device back."""
    course = Course(policy)
    for one in past:
        course.take(one)
    before = course.verdicts()
    course.take(event)
    assert is_never_better(before, course.verdicts())


@given(evidence, st.sampled_from(POLICIES))
def test_the_same_evidence_gives_the_same_verdicts(past: list[Evidence], policy: HealthSettings) -> None:
    """No chance, no clock, no order of a set has a say."""
    courses = [Course(policy), Course(policy)]
    for course in courses:
        for one in past:
            course.take(one)
    assert courses[0].judge.report(unknown_after=3, watched=True, wall=1.0) == courses[1].judge.report(
        unknown_after=3, watched=True, wall=1.0
    )
    assert encode_verdicts(courses[0].judge.collect(9.0)) == encode_verdicts(courses[1].judge.collect(9.0))


@given(evidence, st.sampled_from(POLICIES), st.sampled_from(["boot", "other"]), st.floats(0, 1e6))
def test_a_restart_never_makes_a_device_better(
    past: list[Evidence], policy: HealthSettings, boot_id: str, pause: float
) -> None:
    """Neither a new agent nor a new boot heals anything: proof must be seen and looks be clean."""
    course = Course(policy)
    course.take(DriverState(phase=DriverPhase.READY))
    for one in past:
        if not isinstance(one, DriverState):
            course.take(one)
    before = course.verdicts()
    at = course.at + pause if boot_id == "boot" else pause
    book = resume_verdicts(decode_verdicts(encode_verdicts(course.judge.collect(course.at))), boot_id, at)
    resumed = Course(policy)
    resumed.judge = Judge(book)
    resumed.judge.note_inventory(NODE)
    after = resumed.verdicts()
    unknown = {device: replace_unknown(verdict) for device, verdict in before.items()}
    assert is_never_better(unknown, after)


def replace_unknown(verdict: Verdict) -> Verdict:
    """Unknown is forgotten at a restart, and begins anew at the latest with the missed looks after it."""
    return Verdict.HEALTHY if verdict is Verdict.UNKNOWN else verdict


@given(evidence, st.sampled_from(POLICIES))
def test_what_only_a_person_can_clear_stays_until_one_does(past: list[Evidence], policy: HealthSettings) -> None:
    """Rule S holds against every look, boot and driver; a clearing and clean looks end it."""
    course = Course(policy)
    course.take({"remapped_rows_failed": True, "recovery_action": 0})
    for one in past:
        course.take(one)
    course.take(DriverState(phase=DriverPhase.READY))
    for _ in range(5):
        course.take({"recovery_action": 0})
    assert course.verdicts()[gpu_uuid(0)] is Verdict.UNHEALTHY
    for gpu in NODE.gpus:
        if course.judge.find_record(gpu.uuid).faults:
            course.judge.clear(gpu.uuid, moment(course.at), "ada", "replaced")
    for _ in range(3):
        course.take({"recovery_action": 0})
    assert set(course.verdicts().values()) <= {Verdict.HEALTHY, Verdict.SUSPECT}


@given(evidence)
def test_every_unfit_device_says_why_and_what_to_do(past: list[Evidence]) -> None:
    """No verdict without reason, remedy and a way back."""
    course = Course(HealthSettings())
    for one in past:
        course.take(one)
    report = course.judge.report(unknown_after=3, watched=True, wall=0.0)
    assert [device.device for device in report.devices] == list(NODE.device_uuids)
    for device in report.devices:
        if device.verdict is Verdict.HEALTHY:
            assert (device.reason, device.remedy, device.returns) == ("", "", "")
        else:
            assert all((device.reason, device.remedy, device.returns))
            assert device.return_rule is not ReturnRule.NEVER_LEFT
