"""Plans in words: the act, whom it hits, and why a GPU has none."""

import pytest
from msgspec.structs import replace

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairs import Ending, Rung
from nodeagent.rules.repair.findings import read_findings
from nodeagent.rules.repair.plans import explain_absences, plan_sessions
from nodeagent.rules.repair.sessions import Moment
from nodeagent.rules.signals import Hold
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node, mig_uuid
from tests.support.repairs import find_faults, make_fault, make_report, make_session

NODE, NOW = make_node(2), Moment(now_seconds=1.0, boot="one")
POD = PodIdentity(namespace="team", name="train", uid="u")


@pytest.mark.parametrize(
    ("rung", "act", "hit"),
    [
        (Rung.DRAIN, "drain GPU 0 and read the driver's recovery action again", 1),
        (Rung.RESET, "reset GPU 0", 1),
        (Rung.BUS_RESET, "reset the bus of GPU 0", 1),
        (Rung.RELOAD_DRIVER, "reload the driver for GPU 0", 2),
        (Rung.REBOOT, "request a reboot of the node for GPU 0", 2),
        (Rung.SERVICE, "ask for service of GPU 0", 2),
    ],
)
def test_each_rung_has_its_words_and_its_domain(rung: Rung, act: str, hit: int) -> None:
    (plan,) = plan_sessions([make_session(rung=rung)], NODE, (), NOW, "observe")
    assert (plan.sentence, len(plan.gpus), plan.pods) == (f"would {act}; mode is observe", hit, ())
    assert plan.obstacles[0] == "mode is observe"


def test_the_pods_of_the_domain_are_named_mig_devices_included() -> None:
    """A pod on a GPU that the act does not hit is left out; a closed session has no plan."""
    node = make_inventory([make_gpu(0, mig=("1g.10gb",)), make_gpu(1)])
    holds = [Hold(pod=POD, device=mig_uuid(0, 0)), Hold(pod=replace(POD, name="other"), device=gpu_uuid(1))]
    session = make_session()
    (plan,) = plan_sessions([session, replace(session, number=2, ending=Ending.RECOVERED)], node, holds, NOW, "observe")
    assert plan.pods == ("team/train",)
    assert plan.obstacles == ("mode is observe", "the GPUs are held by team/train")
    (plan,) = plan_sessions([make_session(rung=Rung.REBOOT)], node, holds, NOW, "observe")
    assert plan.pods == ("team/other", "team/train")


def test_a_gpu_is_named_by_its_present_index_and_one_that_is_gone_by_its_last() -> None:
    two = replace(make_session(), gpus=(*make_session(index=0).gpus, *make_session(index=1).gpus))
    node = make_inventory([replace(make_gpu(1), index=5)])
    holds = [Hold(pod=POD, device=gpu_uuid(0))]
    (plan,) = plan_sessions([two], node, holds, NOW, "observe")
    assert plan.sentence == "would reset GPUs 0, 5; mode is observe"
    assert plan.pods == ("team/train",)


def test_why_a_gpu_has_no_session() -> None:
    faults = {0: (make_fault("hot", Remedy.CHECK_COOLING),), 1: ()}
    report = make_report(NODE, faults)
    reasons = explain_absences((), NODE, report, find_faults(NODE, faults), "")
    assert reasons == {
        gpu_uuid(0): "no repair of the agent mends it: hot: check fans, air flow and power of the machine",
        gpu_uuid(1): "no fault is known",
    }
    old = {0: (make_fault(),)}
    found = find_faults(NODE, old)
    assert explain_absences((), NODE, make_report(NODE, old), found, "it settles")[gpu_uuid(0)] == "xid-119: it settles"
    reasons = explain_absences((make_session(index=1),), NODE, make_report(NODE, old), found, "")
    assert reasons == {gpu_uuid(0): "xid-119: reported before the last repair of the GPU, and not found since"}


def test_why_a_gpu_without_a_verdict_has_no_session() -> None:
    empty = HealthReport(generation=1)
    away = read_findings(empty, NODE, DriverState(phase=DriverPhase.STUCK, detail="it hangs"), {})
    assert explain_absences((), NODE, empty, away, "")[gpu_uuid(0)] == "the driver is not ready: it hangs"
    found = find_faults(NODE, {})
    assert explain_absences((), NODE, empty, found, "")[gpu_uuid(0)] == "there is no verdict on the GPU yet"
    report = make_report(NODE, {})
    suspect = replace(
        report, devices=tuple(replace(one, verdict=Verdict.SUSPECT, reason="odd") for one in report.devices)
    )
    assert explain_absences((), NODE, suspect, found, "")[gpu_uuid(0)] == "odd"
