"""Nodes whose GPUs nobody has, as idle-time proving sees them."""

from collections.abc import Mapping

from nodeagent.model.allocation import AllocationTable, PodIdentity
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import Binding, FractionTable, GpuFraction
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.rules.proof.idle import NodeView
from tests.support.gpus import make_node
from tests.support.repairs import READY, make_report


def make_offering(
    node: Inventory, cordons: Mapping[int, Cordon] | None = None, door: Mapping[int, AllocationMode] | None = None
) -> Offering:
    """Every GPU is given out whole, but for those named."""
    doors = [
        GpuAllocationMode(
            gpu=gpu.uuid,
            index=gpu.index,
            address=gpu.pci.address,
            door=(door or {}).get(gpu.index, AllocationMode.WHOLE),
            wanted=AllocationMode.WHOLE,
            reason="the default",
            is_open=True,
            cordons=tuple(one for index, one in (cordons or {}).items() if index == gpu.index),
        )
        for gpu in node.gpus
    ]
    return Offering(doors=tuple(doors))


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
