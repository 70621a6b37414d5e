"""What is granted, and what may be written down as granted before the kubelet asks for it.

A preference is followed by an Allocate of just those devices as a rule, so the grant is written as soon as the
preference is given, and the disk is through when the kubelet asks. What it does not ask for is withdrawn.

Owns what a grant says, and when it may come before its question.
Refuses to expect what others may have a claim to: an agent that dies before the question leaves the grant behind.
"""

from collections.abc import Iterable, Sequence

from nodeagent.components.allocations.ledger import Entry, Granted, Ledger
from nodeagent.components.allocations.reconcile import KubeletRun
from nodeagent.model.allocation import Allocation
from nodeagent.model.ids import DeviceId, ResourceName


def plan_grant(
    ledger: Ledger, resource: ResourceName, devices: Sequence[DeviceId], run: KubeletRun | None, now_seconds: float
) -> Granted:
    """The next grant."""
    allocation = Allocation(
        number=ledger.next_number, resource=resource, devices=tuple(devices), since_seconds=now_seconds
    )
    return Granted(entry=Entry(allocation=allocation, seen_by=run.identity if run is not None else ""))


def may_expect(ledger: Ledger, devices: Iterable[DeviceId], run: KubeletRun | None) -> bool:
    """Whether a grant of these may come before its question: whoever holds one was shown or given it by this run."""
    return run is not None and all(entry.seen_by == run.identity for entry in ledger.holders(devices))


def fits(expected: Granted, resource: ResourceName, devices: Iterable[DeviceId], run: KubeletRun | None) -> bool:
    """Whether what was expected is what this run of the kubelet asks for."""
    allocation = expected.entry.allocation
    is_same = allocation.resource == resource and set(allocation.devices) == set(devices)
    return is_same and run is not None and run.identity == expected.entry.seen_by
