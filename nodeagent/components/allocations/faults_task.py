"""Notes faults in the ledger as the bus tells of them, and has the journal begun anew with them.

Owns the pace: the first fault of a kind is durable at once, repetitions are written together.
Refuses to fail for a receipt: faults that cannot be written stay in memory until the journal is mended.
"""

from contextlib import suppress
from typing import Final

import anyio

from nodeagent.components.allocations.faults import note_fault
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.core.channels.subscription import Listen
from nodeagent.core.clock import Clock
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import GpuFaultReported

NEW_SECONDS: Final = 1.0
"""A dying GPU reports several numbers at once: the later ones are written together."""
REPEAT_SECONDS: Final = 60.0
"""A program that fails again and again is a count, and each writing is a whole journal."""


class FaultNotes:
    """The faults that the journal has yet to be begun with."""

    def __init__(self, clock: Clock, journal: Journal) -> None:
        self._clock, self._journal = clock, journal
        self._due_seconds: float | None = None
        """When the journal is written next; `None` while it has all faults."""
        self._written_seconds = clock.monotonic() - REPEAT_SECONDS

    async def follow(self, faults: Listen[GpuFaultReported]) -> None:
        """Note faults until cancelled; the end of the agent writes the last ones."""
        try:
            async for envelope in faults:
                async with self._journal.turn:
                    before = self._journal.ledger
                    self._journal.ledger, is_new = note_fault(before, envelope.value, envelope.time)
                if self._journal.ledger is not before:
                    self._plan(NEW_SECONDS if is_new else REPEAT_SECONDS)
                    await self.write_due()
        finally:
            with anyio.CancelScope(shield=True):
                if self._due_seconds is not None:
                    await self._write()

    def _plan(self, pause_seconds: float) -> None:
        due = self._written_seconds + pause_seconds
        self._due_seconds = due if self._due_seconds is None else min(due, self._due_seconds)

    async def write_due(self) -> None:
        """Begin the journal anew where faults have waited long enough."""
        if self._due_seconds is not None and self._clock.monotonic() >= self._due_seconds:
            await self._write()

    async def _write(self) -> None:
        async with self._journal.turn:
            self._due_seconds, self._written_seconds = None, self._clock.monotonic()
            # A journal in trouble is begun anew by its component before long, with all that the ledger has.
            with suppress(JournalUnavailable):
                await self._journal.begin(self._journal.ledger)
