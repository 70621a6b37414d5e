"""The ledger and its journal, kept equal: a record is written first and only then applied to the ledger.

Owns the ledger in force, the seal of the journal's last line, and whether the journal can be written at all.
Refuses to append to a journal that has failed, and to begin a new one before the last agent's journal was read.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Ledger, Record, apply_records, open_record
from nodeagent.components.allocations.neighbours import JournalStore
from nodeagent.components.allocations.roles.grants import Identified
from nodeagent.config.live import LiveSettings
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.hearing import Hearing


class Node(NamedTuple):
    """The machine, and its boot."""

    machine: str
    boot: str


class Book:
    """Ledger and journal for one writer at a time; a cancelled write would part ledger and journal."""

    def __init__(
        self,
        store: JournalStore,
        live: LiveSettings,
        node: Node,
        report: Callable[[JournalUnavailable | None], None],
    ) -> None:
        """`report` is called with each failure of the journal, and with `None` after a repair."""
        self._store, self._live, self._node, self._report = store, live, node, report
        self._ledger = Ledger()
        self._seal = self._size_when_begun = 0
        self._is_open = False
        self._broken = "not begun"
        self._nameless: set[int] = set()
        self._hearing_failures = Hearing(JournalUnavailable, self.note_failure)

    @property
    def ledger(self) -> Ledger:
        """All allocations and whatever else is given out."""
        return self._ledger

    @property
    def is_open(self) -> bool:
        """Whether the last agent's journal has been read."""
        return self._is_open

    @property
    def broken(self) -> str:
        """Why the journal must be begun anew; empty for a sound journal."""
        return self._broken

    def open(self, ledger: Ledger) -> None:
        """Start with a ledger made from the last agent's journal."""
        self._ledger, self._is_open = ledger, True

    def is_full(self, share: float = 1.0) -> bool:
        """Whether it is time to begin anew; a journal large from the start may double first."""
        limit = max(self._live.now.journal.rotate_bytes, 2 * self._size_when_begun)
        return self._store.size_bytes > share * limit

    def is_nameless(self, number: int) -> bool:
        """Whether the journal holds the allocation without the pod's name, because a write failed."""
        return number in self._nameless

    def accept(self, records: Sequence[Record]) -> None:
        """Apply records to the ledger without a durable copy; `begin` writes them later."""
        named = (record.number for record in records if isinstance(record, Identified))
        entries = self._ledger.entries
        self._nameless.update(one for one in named if one in entries and entries[one].allocation.pod is None)
        self._ledger = self._after(records)

    async def write(self, records: Sequence[Record], *, durable: bool = True) -> None:
        """Append records, or begin a new journal where the old is full or broken.

        Raises:
            JournalUnavailable: The records are not written, and not part of the ledger.
        """
        after = self._after(records)
        if self._broken or self.is_full():
            await self._begin(after)
            return
        data, seal = encode_records(records, self._seal)
        with self._hearing_failures:
            await self._store.append(data, durable=durable)
        self._ledger, self._seal = after, seal

    async def begin(self) -> None:
        """Begin the journal anew with the ledger.

        Raises:
            JournalUnavailable: The new journal could not be written.
        """
        await self._begin(self._ledger)

    async def _begin(self, ledger: Ledger) -> None:
        data, seal = encode_records([open_record(ledger, *self._node)], 0)
        with self._hearing_failures:
            if not self._is_open:
                raise JournalUnavailable(self._store.path, self._broken)
            await self._store.begin(data)
        self._ledger, self._seal, self._size_when_begun = ledger, seal, len(data)
        self._nameless.clear()
        if self._broken:
            self._broken = ""
            self._report(None)

    def note_failure(self, error: JournalUnavailable) -> None:
        """Mark the journal as broken until a new beginning."""
        self._broken = error.reason
        self._report(error)

    def _after(self, records: Sequence[Record]) -> Ledger:
        return apply_records(self._ledger, records, self._live.now.journal.history_entries)
