"""Whether devices may be handed out, given their holders.

A kubelet without its old checkpoint takes every device for free and hands out GPUs of running containers. A
checkpoint is lost only with a restart. So devices shown or asked for by the present run of the kubelet are its own
business, and devices taken from a finished pod are free at once; a holder is in the way only if an earlier run showed
the holder, and the present run neither shows the holder nor lists its pod as gone.

Owns this rule.
Refuses to refuse on suspicion: an allocation without a pod's name from any run is steered around, not defended.
"""

from collections.abc import Iterable

from nodeagent.components.allocations.ledger import Ledger
from nodeagent.components.allocations.roles.grants import Entry
from nodeagent.model.errors import DeviceHeld
from nodeagent.model.ids import DeviceId
from nodeagent.model.ports import PodListing
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid


class KubeletRun(Value, frozen=True):
    """A life of the kubelet, from start to end; within a run the kubelet forgets nothing."""

    identity: str
    since_seconds: float
    """The start of the run, on the monotonic clock."""


def date_run(
    known: KubeletRun | None, found: tuple[str, float] | None, wall_seconds: float, monotonic_seconds: float
) -> KubeletRun | None:
    """The run with this name and Unix start time; a known run keeps its age when a clock is set."""
    if found is None:
        return None
    identity, began_seconds = found
    if known is not None and known.identity == identity:
        return known
    age_seconds = max(0.0, wall_seconds - began_seconds)
    return KubeletRun(identity=identity, since_seconds=monotonic_seconds - age_seconds)


def find_doubtful(ledger: Ledger, run: KubeletRun | None) -> frozenset[DeviceId]:
    """Devices in doubt: the given run may take them for free, although pods may hold the devices."""
    if run is not None and ledger.is_all_of(run.identity):
        return frozenset()
    return frozenset(
        device
        for entry in ledger.entries.values()
        if run is None or entry.seen_by != run.identity
        for device in entry.devices
    )


def find_holders(ledger: Ledger, devices: Iterable[DeviceId], run: KubeletRun) -> tuple[Entry, ...]:
    """The holders worth a question to the kubelet before the devices are handed out."""
    return tuple(
        entry
        for entry in ledger.holders(devices)
        if entry.allocation.pod is not None and entry.seen_by not in ("", run.identity)
    )


def refuse_claimed(ledger: Ledger, devices: Iterable[DeviceId]) -> None:
    """Refuse devices of claims: an allocation mode may have changed since the kubelet got its list.

    Raises:
        DeviceHeld: A claim has a device.
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
    """The refusal, if any.

    A failed list, `None`, proves no pod gone; the list of a just started kubelet may lack pods for `settle_seconds`.
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
    """Whether the list shows a holder known to the kubelet, or a gone holder."""
    if listing is None:
        return False
    if any(not set(held.devices).isdisjoint(entry.devices) for held in listing.containers):
        return True
    pod = entry.allocation.pod
    return settled and pod is not None and not listing.has_pod(pod)
