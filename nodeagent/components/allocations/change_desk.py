"""Where changes of GPUs in several steps are written down, for the part that makes them; implements `ChangeKeeper`.

Owns nothing: the journal is `component`'s. Refuses a step of a change that it does not know.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from nodeagent.components.allocations.book import Book
from nodeagent.components.allocations.ledger import Record
from nodeagent.components.allocations.roles.changes import Settled, Stepped
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change, Step


class ChangeDesk:
    """Writes for one caller at a time, as the rest of the journal's keeper does."""

    def __init__(
        self,
        path: str,
        book: Book,
        turn: AbstractAsyncContextManager[object],
        write: Callable[[Sequence[Record]], Awaitable[None]],
        now: Callable[[], float],
    ) -> None:
        self._path, self._book, self._turn, self._write, self._now = path, book, turn, write, now

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Make it durable that a change begins."""
        async with self._turn:
            number = self._book.ledger.next_number
            await self._write([Stepped(number=number, owner=owner, gpu=gpu, step=step)])
            return number

    async def step_change(self, number: int, step: Step) -> None:
        """Make the next step of a change durable.

        Raises:
            JournalUnavailable: it is not, or the journal does not know the change.
        """
        async with self._turn:
            change = self._book.ledger.changes.get(number)
            if change is None:
                raise JournalUnavailable(self._path, f"it knows of no change {number}")
            await self._write([Stepped(number=number, owner=change.owner, gpu=change.gpu, step=step)])

    async def settle_change(self, number: int, outcome: str) -> None:
        """Make it durable that a change is over."""
        async with self._turn:
            await self._write([Settled(number=number, at_seconds=self._now(), outcome=outcome)])

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """The changes of one part that are under way, as far as the journal was read."""
        if not self._book.is_open:
            return None
        return tuple(one for one in self._book.ledger.changes.values() if one.owner == owner)
