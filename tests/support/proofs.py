"""Nodes whose GPUs nobody has, as idle-time proving sees them."""

from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import Binding, FractionTable, GpuFraction
from nodeagent.model.proof import ProofRecord, ProofStage, ProofVerdict
from nodeagent.rules.proof.idle import NodeView
from tests.support.fractions import make_offering
from tests.support.gpus import make_node
from tests.support.repairs import READY, make_report


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
