"""The ledger after a fault of a GPU, and after time has passed: which holdings have the fault in their receipts.

A holding is a grant, a binding or a prepared claim. Owns that a holding which has just ended gets a late fault too.
Refuses to wait for the name of a pod: the receipt is the holding's, and the kubelet may name the pod later.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from nodeagent.components.allocations.ledger import Ledger
from nodeagent.components.allocations.roles.grants import HANDED_ON, Ended
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.events import GpuFaultReported
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.receipts import SeenFault, add_fault, see_fault
from nodeagent.rules.signals import ENDED_SECONDS, Severity, find_severity

KEEP_SECONDS: Final = 30 * 86400.0
"""How long an ended allocation is remembered: for questions about last month, and no name is kept forever."""


class _Holding(NamedTuple):
    key: str
    devices: frozenset[str]
    pods: tuple[PodIdentity, ...]


class Noted(NamedTuple):
    """A ledger with a fault in it."""

    ledger: Ledger
    is_new: bool
    """Whether a holding has a fault that it did not have before; otherwise a fault was counted at most."""


def note_fault(ledger: Ledger, fault: GpuFaultReported, at_seconds: float) -> Noted:
    """The ledger with a fault of now, by the same rule by which pods are told: `rules.signals.choose_told`."""
    devices = frozenset(map(str, fault.devices))
    present = [each for each in _list_holdings(ledger) if each.devices & devices]
    former = [place for place, ended in enumerate(ledger.history) if _has_just_ended(ended, devices, at_seconds)]
    pods = [each.pods for each in present] or [_list_pod(ledger.history[place]) for place in former]
    severity = find_severity(fault, _count_pods(pods))
    if present and severity is not Severity.CRITICAL:
        former = []
    seen = see_fault(fault, severity, at_seconds)
    faults, history = dict(ledger.faults), list(ledger.history)
    is_new = False
    for key in (each.key for each in present):
        is_new |= _is_new(faults.get(key, ()), seen)
        faults[key] = add_fault(faults.get(key, ()), seen)
    for place in former:
        ended = history[place]
        is_new |= _is_new(ended.faults, seen)
        history[place] = replace(ended, faults=add_fault(ended.faults, seen))
    if not present and not former:
        return Noted(ledger, is_new=False)
    return Noted(replace(ledger, faults=faults, history=tuple(history)), is_new)


def _list_holdings(ledger: Ledger) -> Iterator[_Holding]:
    for number, entry in ledger.entries.items():
        pods = () if entry.allocation.pod is None else (entry.allocation.pod,)
        yield _Holding(str(number), frozenset(map(find_uuid, entry.devices)), pods)
    for number, binding in ledger.fractions.bindings.items():
        yield _Holding(str(number), frozenset(str(part.gpu) for part in binding.parts), (binding.pod,))
    for uid, claim in ledger.claims.items():
        held = frozenset(str(each.uuid or each.gpu) for each in claim.devices if not each.is_admin)
        yield _Holding(uid, held, claim.pods)


def _has_just_ended(ended: Ended, devices: frozenset[str], at_seconds: float) -> bool:
    if ended.why == HANDED_ON or at_seconds - ended.until_seconds >= ENDED_SECONDS:
        return False
    return not devices.isdisjoint(map(find_uuid, ended.allocation.devices))


def _list_pod(ended: Ended) -> tuple[PodIdentity, ...]:
    return () if ended.allocation.pod is None else (ended.allocation.pod,)


def _count_pods(holdings: list[tuple[PodIdentity, ...]]) -> int:
    """The number of pods; a holding whose pod nobody has named counts as a pod."""
    named = {(pod.uid or (pod.namespace, pod.name)) for pods in holdings for pod in pods}
    return len(named) + holdings.count(())


def _is_new(seen: tuple[SeenFault, ...], new: SeenFault) -> bool:
    return len(add_fault(seen, new)) > len(seen)


def forget_old(ledger: Ledger, now_seconds: float) -> Ledger:
    """The ledger without what ended long ago, and without faults of holdings that are no more."""
    living = {each.key for each in _list_holdings(ledger)}
    faults = {key: seen for key, seen in ledger.faults.items() if key in living}
    history = tuple(each for each in ledger.history if now_seconds - each.until_seconds < KEEP_SECONDS)
    if len(history) == len(ledger.history) and len(faults) == len(ledger.faults):
        return ledger
    return replace(ledger, faults=faults, history=history)
