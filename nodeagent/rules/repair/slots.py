"""Slots: Leases that stand before, one of each domain of the node for a repair or an upgrade of the driver; pure.

The API server refuses the second of two writers and enforces nothing else. Whether a holder has vanished is judged by
the reader's own clock, from when the reader saw the Lease's time of renewal change: no two clocks are compared.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.config.sections.repairers import SlotDomainSettings
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.repairs import Ending, FaultSession, Rung
from nodeagent.model.slots import CLUSTER, UPGRADE_PREFIX, Domain, Holder, Slot, SlotWork
from nodeagent.model.upgrades import DriverUpgrade, UpgradeEnding, UpgradePhase
from nodeagent.model.values import Value
from nodeagent.rules.repair.breaker import count_open, note_result, read_breaker, render_breaker

HELD_SECONDS: Final[Mapping[Rung, float]] = {
    Rung.DRAIN: 600.0,
    Rung.RESET: 600.0,
    Rung.BUS_RESET: 600.0,
    Rung.RELOAD_DRIVER: 1200.0,
    Rung.REBOOT: 2700.0,
}
"""For how long a slot is held without a renewal."""
RENEW_SECONDS: Final = 300.0
"""The age of a holder's last write from which a repair that lasts writes again; shorter repairs renew nothing."""
RETRY_SECONDS: Final = 60.0
OLD_SECONDS: Final = 3600.0
"""Work of this age asks sooner."""
_WITHOUT_FAILURE: Final = frozenset({Ending.REPAIRED, Ending.REMOVED, Ending.JOINED})
"""Endings of sessions that leave no unproven repair behind."""


class Sighting(Value, frozen=True):
    """From when a reader has seen something unchanged, by the reader's own clock."""

    seen: str
    since_seconds: float


class Sightings(Value, frozen=True):
    """The slots of a domain as a reader has seen them change."""

    holders: Mapping[int, Sighting]
    phase: Sighting


def note_slots(before: Sightings | None, slots: Sequence[Slot], now: float) -> Sightings:
    """The reader's sightings after a read of a domain's slots, the first slot among the slots."""
    phase = str(read_breaker(slots[0].breaker).phase)
    known = {} if before is None else before.holders
    seen = {slot.number: _note(known.get(slot.number), f"{slot.holder} {slot.renewed}", now) for slot in slots}
    return Sightings(holders={**known, **seen}, phase=_note(None if before is None else before.phase, phase, now))


def _note(before: Sighting | None, seen: str, now: float) -> Sighting:
    return before if before is not None and before.seen == seen else Sighting(seen=seen, since_seconds=now)


def list_domains(configured: Sequence[SlotDomainSettings], node: ClusterNode | None) -> tuple[tuple[Domain, ...], str]:
    """The node's domains in their order, and why a repair cannot take a slot in each of them; empty if it can."""
    labels = {**(node.labels if node is not None else {}), CLUSTER: ""}
    domains = tuple(
        Domain(key=each.label, value=labels[each.label], slots=each.slots)
        for each in configured
        if each.label in labels
    )
    lacking = ", ".join(each.label for each in configured if each.label not in labels)
    if not lacking:
        return domains, ""
    if node is None:
        return domains, "the node's labels are not known yet, which name its domains"
    return domains, f"the node has no label {lacking}: label the node, or change `repairs.slots.domains`"


def find_slot(
    domain: Domain, slots: Sequence[Slot], holder: Holder, seen: Sightings, now: float
) -> tuple[Slot | None, str]:
    """The slot to take, or why there is none; the work's own slot before all others.

    Args:
        domain: the domain.
        slots: all slots of the domain in their order.
        holder: who asks.
        seen: what the reader remembers, these slots noted.
        now: the time by the reader's clock.
    """
    first = slots[0]
    if first.is_suspended:
        return None, f"a person has suspended repairs in {domain}"
    own = next((slot for slot in slots if holder.owns(slot.holder)), None)
    if own is not None:
        return own, ""
    opened = count_open_slots(slots, seen, now)
    if not opened:
        return None, f"repairs in {domain} are stopped: too many of the last were not proven"
    allowed = slots[:opened]
    free = [slot for slot in allowed if is_free(slot, seen.holders[slot.number], now)]
    if free:
        return free[_draw(holder.node, len(free))], ""
    held = "; ".join(_describe(slot, seen.holders[slot.number], now) for slot in allowed)
    return None, f"no slot of {domain} is free: {held}"


def count_open_slots(slots: Sequence[Slot], seen: Sightings, now: float) -> int:
    """How many slots of a domain may be taken, by all slots of the domain and what the reader remembers."""
    if slots[0].is_suspended:
        return 0
    return count_open(read_breaker(slots[0].breaker), len(slots), now - seen.phase.since_seconds)


def take_slot(slot: Slot, holder: Holder, seconds: float) -> Slot:
    """The slot with its holder, for so long; the work's own slot keeps the phase of its taking."""
    phase = find_phase(slot) if holder.owns(slot.holder) else holder.phase
    return replace(slot, holder=str(replace(holder, phase=phase)), seconds=seconds)


def is_due(slot: Slot, taken: Slot, sighting: Sighting, now: float) -> bool:
    """Whether the taken slot has to be written: for a new holder, boot or longer time, or as a renewal."""
    is_news = slot.holder != taken.holder or slot.seconds < taken.seconds
    return is_news or now - sighting.since_seconds >= RENEW_SECONDS


def is_free(slot: Slot, sighting: Sighting, now: float) -> bool:
    """Whether nobody holds the slot, or the holder was not heard of for the time of the slot."""
    return not slot.holder or now - sighting.since_seconds >= slot.seconds


def _draw(node: str, count: int) -> int:
    """A number below the count, of the node alone: nodes that ask together ask for different slots."""
    return int.from_bytes(hashlib.sha256(node.encode()).digest()[:4], "big") % count


def _describe(slot: Slot, sighting: Sighting, now: float) -> str:
    node, _, text = slot.holder.partition("/")
    work = text.partition("/")[2].partition("/")[0]
    holder = f"{node} for {work.replace('-', ' ')}" if work.startswith(UPGRADE_PREFIX) else node
    return f"{holder}, seen for {round((now - sighting.since_seconds) / 60)} min"


def find_retry_seconds(*, is_grave: bool, age_seconds: float, draw: float) -> float:
    """Until refused work asks again: 60 seconds give or take half, sooner for grave and old work.

    Args:
        is_grave: whether the work asks sooner.
        age_seconds: for how long the work is open.
        draw: a random number from 0 to 1.
    """
    sooner = 1 + is_grave + (age_seconds >= OLD_SECONDS)
    return RETRY_SECONDS * (0.5 + draw) / sooner


def note_repair(first: Slot, own: Slot, *, is_proven: bool) -> str:
    """The text of the breaker after a repair with the own slot; the same text where nothing has to be written."""
    before = read_breaker(first.breaker)
    after = note_result(before, find_phase(own), is_proven=is_proven)
    return first.breaker if after == before else render_breaker(after)


def read_session(session: FaultSession) -> SlotWork:
    """The repair of a session as work; a person's work holds a slot for no time."""
    tries = [one.began_seconds for one in session.attempts if one.is_own and not one.is_open and one.counts]
    return SlotWork(
        name=str(session.number),
        held_seconds=HELD_SECONDS.get(session.rung, 0.0),
        opened_seconds=session.opened_seconds,
        closed_seconds=session.closed_seconds,
        began_seconds=None if session.under_way is None else session.under_way.began_seconds,
        is_grave=session.rung.rank >= Rung.REBOOT.rank,
        is_proven=session.ending is Ending.REPAIRED,
        failed_seconds=None if session.ending in _WITHOUT_FAILURE else max(tries, default=None),
    )


def read_upgrade(upgrade: DriverUpgrade) -> SlotWork:
    """An upgrade as work: an act from the end of its drain on, which may take a reboot."""
    is_draining = upgrade.phase is UpgradePhase.DRAIN
    return SlotWork(
        name=f"{UPGRADE_PREFIX}{upgrade.number}",
        held_seconds=HELD_SECONDS[Rung.REBOOT],
        opened_seconds=upgrade.began_seconds,
        closed_seconds=upgrade.ended_seconds,
        began_seconds=None if is_draining else upgrade.phase_seconds,
        is_proven=upgrade.ending is UpgradeEnding.DONE,
        failed_seconds=upgrade.ended_seconds if upgrade.ending is UpgradeEnding.FAILED else None,
    )


def find_result(work: SlotWork, since_seconds: float) -> bool | None:
    """Whether the work with slots taken at a time was proven; `None` where nothing was tried since."""
    if work.is_proven:
        return True
    return False if work.failed_seconds is not None and work.failed_seconds >= since_seconds else None


def find_phase(own: Slot) -> int:
    """The phase of the breaker in which the holder took its own slot."""
    return int(own.holder.rpartition("/")[2])
