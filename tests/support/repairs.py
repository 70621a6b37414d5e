"""Fault sessions with their evidence, driver upgrades, and proofs of GPUs, made of as little as a test cares about."""

from collections.abc import Mapping, Sequence

from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, FoundFault, HealthReport, Verdict
from nodeagent.model.journal import Binding, FractionTable, GpuFraction
from nodeagent.model.proof import ProofRecord, ProofStage, ProofVerdict
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairs import Attempt, Evidence, FaultSession, Outcome, Rung
from nodeagent.model.upgrades import DriverUpgrade, UpgradePhase
from nodeagent.rules.proof.idle import NodeView
from nodeagent.rules.repair.domains import describe_gpu
from nodeagent.rules.repair.findings import Findings, read_findings
from tests.support.fractions import make_offering
from tests.support.gpus import gpu_uuid, make_gpu, make_node

OLD, NEW = "570.133.20", "580.105.08"
READY = DriverState(phase=DriverPhase.READY)


def make_evidence(index: int, key: str = "xid-119", rung: Rung = Rung.RESET, seen: float = 0.0) -> Evidence:
    return Evidence(gpu=gpu_uuid(index), key=key, rung=rung, seen_seconds=seen)


def make_session(
    number: int = 1, index: int = 0, rung: Rung = Rung.RESET, *, attempts: Sequence[Attempt] = (), boot: str = "one"
) -> FaultSession:
    return FaultSession(
        number=number,
        gpus=(describe_gpu(make_gpu(index)),),
        cause="xid-119",
        evidence=(make_evidence(index),),
        rung=rung,
        boot=boot,
        opened_seconds=0.0,
        attempts=tuple(attempts),
    )


def make_attempt(
    rung: Rung = Rung.RESET,
    outcome: Outcome | None = Outcome.FAILED,
    *,
    began: float = 0.0,
    index: int = 0,
    boot: str = "one",
) -> Attempt:
    return Attempt(
        rung=rung,
        boards=(gpu_uuid(index),),
        boot=boot,
        began_seconds=began,
        deadline_seconds=began + 600,
        outcome=outcome,
        ended_seconds=None if outcome is None else began + 60,
    )


def make_fault(key: str = "xid-119", remedy: Remedy = Remedy.RESET_GPU, seen: float = 0.0) -> FoundFault:
    return FoundFault(key=key, verdict=Verdict.UNHEALTHY, remedy=remedy, seen_seconds=seen)


def make_report(inventory: Inventory, faults: Mapping[int, Sequence[FoundFault]]) -> HealthReport:
    """The verdicts on all devices; GPUs that `faults` leaves out are healthy."""
    devices = [
        DeviceHealth(
            device=uuid,
            gpu=gpu.uuid,
            verdict=Verdict.UNHEALTHY if faults.get(gpu.index) else Verdict.HEALTHY,
            since_seconds=0.0,
            findings=tuple(faults.get(gpu.index, ())),
        )
        for gpu in inventory.gpus
        for uuid in gpu.device_uuids
    ]
    return HealthReport(generation=inventory.generation, devices=tuple(devices))


def find_faults(inventory: Inventory, faults: Mapping[int, Sequence[FoundFault]]) -> Findings:
    """The findings of a complete poll with these faults."""
    return read_findings(make_report(inventory, faults), inventory, READY, {})


def make_passed(seconds: float = 1e9) -> ProofRecord:
    return ProofRecord(
        verdict=ProofVerdict.PASSED,
        ended_seconds=seconds,
        took_seconds=2.0,
        level=ProofStage.QUICK,
        proven_seconds=seconds,
    )


def make_failed() -> ProofRecord:
    return ProofRecord(verdict=ProofVerdict.FAILED, ended_seconds=2e9, took_seconds=2.0, reason="memory: 1 word wrong")


def make_binding(number: int, reservations: tuple[int, ...], part: GpuFraction) -> Binding:
    pod = PodIdentity(uid="u", namespace="n", name="p")
    return Binding(number=number, reservations=reservations, pod=pod, container="c", parts=(part,), since_seconds=0.0)


def see_quiet(node: Inventory) -> NodeView:
    """A node of healthy GPUs, all of them free."""
    return NodeView(
        inventory=node,
        driver=READY,
        health=make_report(node, {}),
        offering=make_offering(node),
        allocations=AllocationTable(),
        fractions=FractionTable(),
        claims=ReadyClaims(),
        mig=None,
        mps=None,
        repairs=None,
    )


QUIET = see_quiet(make_node(3))


def make_upgrade(phase: UpgradePhase = UpgradePhase.DRAIN, number: int = 1, **changes: object) -> DriverUpgrade:
    words: dict[str, object] = {
        "number": number,
        "before": OLD,
        "wanted": NEW,
        "gpus": (describe_gpu(make_gpu(0)),),
        "boot": "one",
        "began_seconds": 0.0,
        "phase_seconds": 0.0,
        "phase": phase,
    }
    return DriverUpgrade(**(words | changes))  # type: ignore[arg-type]  # the words of the model
