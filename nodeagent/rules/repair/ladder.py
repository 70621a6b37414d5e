"""The ladder of repairs: where a fault enters, and where a session climbs after an attempt.

Owns that nothing leads down. Refuses to know how often a rung may be taken (`guard.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.model.health import FoundFault
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairs import FaultSession, Outcome, Rung

RECOVERY_ACTION: Final = "recovery-action"
"""The fault by which the driver itself asks for an action."""
BUS_RESET_ACTION: Final = 6
"""The driver's word for a bus reset."""
_ENTRIES: Final[Mapping[Remedy, Rung]] = {
    Remedy.DRAIN_AND_RESET: Rung.DRAIN,
    Remedy.RESET_GPU: Rung.RESET,
    Remedy.REBOOT_NODE: Rung.REBOOT,
    # No reset reaches a GPU that is off the bus, whatever its driver asks for.
    Remedy.POWER_CYCLE: Rung.REBOOT,
    Remedy.SERVICE: Rung.SERVICE,
}
"""Remedies that a repair can carry out; the others are a matter of the program, the driver or the machine room."""
_NEXT: Final[Mapping[tuple[Rung, Outcome], Rung]] = {
    (Rung.RESET, Outcome.UNSUPPORTED): Rung.BUS_RESET,
    (Rung.RESET, Outcome.REFUSED): Rung.RELOAD_DRIVER,
    (Rung.BUS_RESET, Outcome.REFUSED): Rung.RELOAD_DRIVER,
}
"""The steps that an outcome opens; without such a step a failed act is followed by a reboot."""
_AFTER: Final[Mapping[Rung, Rung]] = {
    Rung.DRAIN: Rung.RESET,
    Rung.RESET: Rung.REBOOT,
    Rung.BUS_RESET: Rung.REBOOT,
    Rung.RELOAD_DRIVER: Rung.REBOOT,
    Rung.REBOOT: Rung.SERVICE,
    Rung.SERVICE: Rung.SERVICE,
}


def find_entry(fault: FoundFault, recovery_action: int | None) -> Rung | None:
    """The rung that a fault asks for; `None` for a fault that no repair mends."""
    if fault.key == RECOVERY_ACTION and recovery_action == BUS_RESET_ACTION:
        return Rung.BUS_RESET
    return _ENTRIES.get(fault.remedy)


def find_highest(rungs: Iterable[Rung]) -> Rung:
    """The highest of some rungs."""
    return max(rungs, key=lambda rung: rung.rank)


def climb(rung: Rung, outcome: Outcome) -> Rung:
    """The rung after an attempt that did not mend the fault."""
    if not outcome.counts:
        return rung
    if outcome is Outcome.BROKEN:
        return Rung.SERVICE
    return _NEXT.get((rung, outcome), _AFTER[rung])


def skip_spent(session: FaultSession) -> Rung:
    """The session's rung, or the next one that the session has not taken: each is taken once."""
    spent = {attempt.rung for attempt in session.attempts if attempt.counts and not attempt.is_open}
    rung = session.rung
    while rung in spent and rung is not Rung.SERVICE:
        rung = _AFTER[rung]
    return rung
