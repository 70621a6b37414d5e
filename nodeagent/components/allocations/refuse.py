"""Whether devices may be handed out, given who holds them.

A kubelet whose checkpoint was lost takes every device for free and hands out GPUs on which containers run. It can
lose it only by restarting. So what the present run of the kubelet has shown or asked for is its own business, and
what it takes from a finished pod is free at once; only a holder that an earlier run showed, and that this run neither
shows nor lists as gone, is in the way.

Owns this rule.
Refuses to refuse on suspicion: an allocation that no run ever named a pod for is steered around, not defended.
"""

from collections.abc import Iterable

from nodeagent.components.allocations.ledger import Ledger
from nodeagent.components.allocations.reconcile import KubeletRun, is_listed
from nodeagent.components.allocations.roles.grants import Entry
from nodeagent.model.errors import DeviceHeld
from nodeagent.model.ids import DeviceId
from nodeagent.model.ports import PodListing
from nodeagent.rules.ids import find_uuid


def find_doubtful(ledger: Ledger, run: KubeletRun | None) -> frozenset[DeviceId]:
    """Devices that this run of the kubelet may take for free although somebody may hold them."""
    if run is not None and ledger.is_all_of(run.identity):
        return frozenset()
    return frozenset(
        device
        for entry in ledger.entries.values()
        if run is None or entry.seen_by != run.identity
        for device in entry.devices
    )


def find_holders(ledger: Ledger, devices: Iterable[DeviceId], run: KubeletRun) -> tuple[Entry, ...]:
    """Those whose claim is worth a question to the kubelet before the devices are handed out."""
    return tuple(
        entry
        for entry in ledger.holders(devices)
        if entry.allocation.pod is not None and entry.seen_by not in ("", run.identity)
    )


def refuse_claimed(ledger: Ledger, devices: Iterable[DeviceId]) -> None:
    """Let nothing be handed out that a claim has: a door may have changed since the kubelet was sent its list.

    Raises:
        DeviceHeld: one of the devices is a claim's.
    """
    if not ledger.claims:
        return
    taken: dict[str, str] = {
        name: claim.describe()
        for claim in ledger.claims.values()
        for device in claim.devices
        if not device.is_admin
        for name in (device.uuid, device.gpu)
    }
    for device in devices:
        if (holder := taken.get(find_uuid(device))) is not None:
            raise DeviceHeld(device, f"claim {holder}")


def decide_refusal(
    holders: Iterable[Entry],
    devices: Iterable[DeviceId],
    listing: PodListing | None,
    run: KubeletRun,
    monotonic_seconds: float,
    settle_seconds: float,
) -> DeviceHeld | None:
    """The refusal, if there is to be one.

    Args:
        holders: what `find_holders` found.
        devices: what is asked for.
        listing: the kubelet's list of just now; `None` when it could not be had, which proves nobody gone.
        run: the kubelet that asks.
        monotonic_seconds: the time, on the clock of `run`.
        settle_seconds: how long the list of a kubelet that has just started may lack pods.
    """
    wanted = set(devices)
    settled = monotonic_seconds - run.since_seconds >= settle_seconds
    for entry in holders:
        pod = entry.allocation.pod
        if pod is None or _is_resolved(entry, listing, settled=settled):
            continue
        device = min(wanted.intersection(entry.devices))
        return DeviceHeld(device, f"{pod.namespace}/{pod.name}" if pod.name else f"pod {pod.uid}")
    return None


def _is_resolved(entry: Entry, listing: PodListing | None, *, settled: bool) -> bool:
    """Whether the list shows that the kubelet knows the holder, or that the holder is gone."""
    if listing is None:
        return False
    if any(not set(held.devices).isdisjoint(entry.devices) for held in listing.containers):
        return True
    pod = entry.allocation.pod
    return settled and pod is not None and not is_listed(pod, listing)
