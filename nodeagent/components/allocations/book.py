"""The ledger and the journal that holds it, kept alike: a record is written down first and only then taken in.

Owns the ledger in force, the seal of the journal's last line, and whether the journal can be written at all.
Refuses to go on in a journal that has failed, and to begin one before what the last agent left was read.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from nodeagent.components.allocations.journal import Withdrawn, encode_lines
from nodeagent.components.allocations.ledger import Granted, Identified, Ledger, Record, apply_records, open_record
from nodeagent.components.allocations.neighbours import JournalStore
from nodeagent.config.live import LiveSettings
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.hearing import Hearing
from nodeagent.model.prepared import Prepared


class Node(NamedTuple):
    """Which machine this is, and which of its lives."""

    machine: str
    boot: str


class _Expected(NamedTuple):
    """A grant that is being written although nobody has asked for it yet."""

    granted: Granted
    seal: int
    collect: Callable[[], Awaitable[None] | None]


class Book:
    """For one writer at a time; whoever awaits must not be interrupted, or ledger and journal part."""

    def __init__(
        self,
        store: JournalStore,
        live: LiveSettings,
        node: Node,
        report: Callable[[JournalUnavailable | None, str], None],
    ) -> None:
        """`report` is told of each failure of the journal, with `None` that it is sound again, and what was before."""
        self._store, self._live, self._node, self._report = store, live, node, report
        self._ledger = Ledger()
        self._seal = self._size_when_begun = 0
        self._is_open = False
        self._broken = "not begun"
        self._nameless: set[int] = set()
        self._expected: _Expected | None = None
        self._hearing_failures = Hearing(JournalUnavailable, self.note_failure)

    @property
    def ledger(self) -> Ledger:
        """Who holds what."""
        return self._ledger

    @property
    def is_open(self) -> bool:
        """Whether what the last agent left has been read."""
        return self._is_open

    @property
    def broken(self) -> str:
        """Why the journal must be begun anew; empty when it need not."""
        return self._broken

    @property
    def expected(self) -> Granted | None:
        """What was written before anybody asked for it; to be granted or withdrawn before anything else is written."""
        return None if self._expected is None else self._expected.granted

    @property
    def is_sound(self) -> bool:
        """Whether one more record may simply be added."""
        return not self._broken and not self.is_full()

    def open(self, ledger: Ledger) -> None:
        """What the last agent left is part of this ledger."""
        self._ledger, self._is_open = ledger, True

    def is_full(self, share: float = 1.0) -> bool:
        """Whether it is time to begin anew; a journal that is large from the start may double first."""
        limit = max(self._live.now.journal.rotate_bytes, 2 * self._size_when_begun)
        return self._store.size_bytes > share * limit

    def is_nameless(self, number: int) -> bool:
        """Whether the journal holds the allocation, but could not be told whose it is."""
        return number in self._nameless

    def accept(self, records: Sequence[Record]) -> None:
        """Take records into the ledger without a durable copy, which `begin` makes up for."""
        named = (record.number for record in records if isinstance(record, Identified))
        entries = self._ledger.entries
        self._nameless.update(one for one in named if one in entries and entries[one].allocation.pod is None)
        self._ledger = self._after(records)

    async def write(self, records: Sequence[Record], *, durable: bool = True) -> None:
        """Write records down, in a new journal where it is time for one.

        Raises:
            JournalUnavailable: they are not written, and not part of the ledger.
        """
        if not self.is_sound:
            await self._begin(self._after(records))
            return
        data, seal = encode_lines(records, self._seal)
        with self._hearing_failures:
            pending = self._store.append(data, durable=durable)
            if pending is not None:
                await pending
        self._ledger, self._seal = self._after(records), seal

    def grant(self, granted: Granted, meanwhile: Callable[[], None] | None = None) -> Awaitable[None] | None:
        """Write a grant down in the present journal, unless that was begun when it was expected.

        `meanwhile` is called while the disk is waited for, at most once and perhaps not at all; it must not raise.

        Returns:
            `None` when it is durable and part of the ledger, else what must be awaited for that.

        Raises:
            JournalUnavailable: it is not written, and not part of the ledger.
        """
        after = Prepared(lambda: self._after([granted]))

        def prepare() -> None:
            after.prepare()
            if meanwhile is not None:
                meanwhile()

        if self._expected is not None and self._expected.granted is granted:
            expected, self._expected = self._expected, None
            prepare()
            with self._hearing_failures:
                return self._enter(expected.collect(), after, expected.seal)
        data, seal = encode_lines([granted], self._seal)
        with self._hearing_failures:
            return self._enter(self._store.append(data, meanwhile=prepare), after, seal)

    def expect(self, granted: Granted) -> None:
        """Write a grant down that is likely to be asked for, and go on meanwhile.

        Raises:
            JournalUnavailable: it cannot be written.
        """
        data, seal = encode_lines([granted], self._seal)
        with self._hearing_failures:
            collect = self._store.begin_append(data)
        self._expected = _Expected(granted, seal, collect)

    async def withdraw(self) -> None:
        """Take back what nobody has asked for, if there is such.

        Raises:
            JournalUnavailable: it may or may not be written.
        """
        expected, self._expected = self._expected, None
        if expected is None:
            return
        with self._hearing_failures:
            pending = expected.collect()
            if pending is not None:
                await pending
            withdrawn = Withdrawn(number=expected.granted.entry.allocation.number)
            data, seal = encode_lines([withdrawn], expected.seal)
            # Not synced: whatever is synced next follows it, and until then nothing was promised.
            pending = self._store.append(data, durable=False)
            if pending is not None:
                await pending
        self._seal = seal

    async def begin(self) -> None:
        """Begin the journal anew with what is known.

        Raises:
            JournalUnavailable: it could not be done.
        """
        await self._begin(self._ledger)

    def _enter(self, pending: Awaitable[None] | None, after: Prepared[Ledger], seal: int) -> Awaitable[None] | None:
        if pending is not None:
            return self._enter_when(pending, after, seal)
        self._ledger, self._seal = after.take(), seal
        return None

    async def _enter_when(self, pending: Awaitable[None], after: Prepared[Ledger], seal: int) -> None:
        with self._hearing_failures:
            await pending
        self._enter(None, after, seal)

    async def _begin(self, ledger: Ledger) -> None:
        data, seal = encode_lines([open_record(ledger, *self._node)], 0)
        with self._hearing_failures:
            if not self._is_open:
                raise JournalUnavailable(self._store.path, self._broken)
            await self._store.begin(data)
        self._ledger, self._seal, self._size_when_begun = ledger, seal, len(data)
        self._nameless.clear()
        if self._broken:
            before, self._broken = self._broken, ""
            self._report(None, before)

    def note_failure(self, error: JournalUnavailable) -> None:
        """The journal is not to be written until it was begun anew."""
        before, self._broken = self._broken, error.reason
        self._report(error, before)

    def _after(self, records: Sequence[Record]) -> Ledger:
        return apply_records(self._ledger, records, self._live.now.journal.history_entries)
