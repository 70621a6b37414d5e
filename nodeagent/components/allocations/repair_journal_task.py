"""The fault sessions in the journal; implements the port `RepairJournal`.

Owns the numbers of sessions, which are of the journal's one sequence.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.roles.repairs import SessionKept
from nodeagent.core.clock import Clock
from nodeagent.model.repairs import FaultSession


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
