"""The fault sessions and the driver's upgrades in the journal; implements `RepairJournal` and `UpgradeJournal`.

Owns the numbers of sessions and upgrades, which are of the journal's one sequence.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.roles.repairs import SessionKept, UpgradeKept
from nodeagent.core.clock import Clock
from nodeagent.model.repairs import FaultSession
from nodeagent.model.upgrades import DriverUpgrade


class RepairSessions:
    """The sessions as the journal has them."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock

    def read_boot(self) -> str:
        """The id of the boot for which the journal is open."""
        return self._journal.node.boot

    def sessions(self) -> Mapping[int, FaultSession] | None:
        """The sessions by number; `None` before the journal is read."""
        return None if (ledger := self._journal.read_ledger()) is None else ledger.sessions

    async def keep_session(self, session: FaultSession) -> FaultSession:
        """Make a session durable."""
        (kept,) = await self._journal.commit(
            lambda ledger: [
                SessionKept(
                    session=session if session.number else replace(session, number=ledger.next_number),
                    at_seconds=self._clock.wall(),
                )
            ]
        )
        return kept.session


class DriverUpgrades:
    """The upgrades as the journal has them."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def read_boot(self) -> str:
        """The id of the boot for which the journal is open."""
        return self._journal.node.boot

    def upgrades(self) -> Mapping[int, DriverUpgrade] | None:
        """The upgrades by number; `None` before the journal is read."""
        return None if (ledger := self._journal.read_ledger()) is None else ledger.upgrades

    async def keep_upgrade(self, upgrade: DriverUpgrade) -> DriverUpgrade:
        """Make an upgrade durable."""
        (kept,) = await self._journal.commit(
            lambda ledger: [
                UpgradeKept(upgrade=upgrade if upgrade.number else replace(upgrade, number=ledger.next_number))
            ]
        )
        return kept.upgrade
