"""The fault sessions of GPUs and the upgrades of the driver, kept over restarts of agent and node.

A session's attempts count for days after its end, and an upgrade tells how long the next one may take.
Owns how long both are remembered. Refuses to know what a rung means: `rules/repair` has decided before.
"""

from collections.abc import MutableMapping
from typing import Final

from nodeagent.model.repairs import FaultSession
from nodeagent.model.upgrades import DriverUpgrade
from nodeagent.model.values import Value

REMEMBERED_SECONDS: Final = 7 * 86400.0
"""How long a closed session stays: as long as the guard counts its attempts."""
REMEMBERED_MAX: Final = 64
"""Of closed sessions without an attempt of the agent's own, which count for nothing."""
UPGRADES_MAX: Final = 8
"""Upgrades that are remembered, the newest ones."""


class SessionKept(Value, frozen=True, tag="session_kept"):
    """A session from now on."""

    session: FaultSession
    at_seconds: float


def apply_session(sessions: MutableMapping[int, FaultSession], record: SessionKept, next_number: int) -> None:
    """Apply a record to the sessions by number, and forget the closed sessions that count for nothing any more.

    A record about a forgotten session changes nothing.
    """
    if record.session.number not in sessions and record.session.number < next_number:
        return
    sessions[record.session.number] = record.session
    closed = [session for session in sessions.values() if session.closed_seconds is not None]
    idle = sorted(one.number for one in closed if not any(attempt.is_own for attempt in one.attempts))
    old = [one.number for one in closed if record.at_seconds - (one.closed_seconds or 0.0) > REMEMBERED_SECONDS]
    for number in {*old, *idle[:-REMEMBERED_MAX]}:
        del sessions[number]


class UpgradeKept(Value, frozen=True, tag="upgrade_kept"):
    """An upgrade of the driver from now on."""

    upgrade: DriverUpgrade


def apply_upgrade(upgrades: MutableMapping[int, DriverUpgrade], record: UpgradeKept, next_number: int) -> None:
    """Apply a record to the upgrades by number; a record about a forgotten upgrade changes nothing."""
    if record.upgrade.number not in upgrades and record.upgrade.number < next_number:
        return
    upgrades[record.upgrade.number] = record.upgrade
    for number in sorted(upgrades)[:-UPGRADES_MAX]:
        del upgrades[number]
