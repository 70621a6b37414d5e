"""The reader's end of the bus: one object per subscription, a context manager to be iterated inside its block.

Owns the waiting items of one reader, and their age. Refuses iteration by two tasks, or outside the `with` block.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.core.channels.envelope import Envelope, name_type
from nodeagent.core.channels.mailbox import BoundedQueue, Mailbox, Slots
from nodeagent.core.values import ListenerStatistics

if TYPE_CHECKING:
    from nodeagent.core.channels.bus import Bus

T = TypeVar("T")
Item = TypeVar("Item")
Stored = TypeVar("Stored")


class PublisherStatistics(Struct, frozen=True):
    """The number of envelopes of one class from one source."""

    source: str
    type_name: str
    count: int


class BusStatistics(Struct, frozen=True):
    """The state of the bus, for debugging."""

    published: int
    retained: int
    publishers: tuple[PublisherStatistics, ...]
    listeners: tuple[ListenerStatistics, ...]


class Subscription(ABC, Generic[Stored, Item]):
    """The base of all readers; `kind` is the name in statistics."""

    kind = ""
    after: int | None = None
    """The envelope after which earlier facts are delivered from the history; `None` for new facts only."""

    def __init__(
        self, bus: "Bus", client: str, topics: Sequence[type], mailbox: Mailbox[Stored], slow_after_seconds: float
    ) -> None:
        self._bus = bus
        self._mailbox = mailbox
        self._slow_after_seconds = slow_after_seconds
        self._untouched_since: float | None = None
        self._is_slow = False
        self._taken = 0
        self._slow_count = 0
        self.client = client
        self.topics = tuple(topics)
        self.lost = 0

    def __enter__(self) -> Self:
        self._bus.attach(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bus.detach(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        # one pass through the loop per item: a reader that never catches up must still be cancellable
        await asyncio.sleep(0)
        return self._taken_out(await self._mailbox.take())

    def take_nowait(self) -> Item | None:
        """The next item, or `None` without a waiting item."""
        stored = self._mailbox.take_nowait()
        return None if stored is None else self._taken_out(stored)

    @abstractmethod
    def offer(self, envelope: Envelope[Any], now: float) -> None:
        """Called by the bus for each envelope of the topics."""

    def catch_up(self, envelope: Envelope[Any], now: float) -> None:
        """Called by the bus for each retained state when the subscription begins."""
        self.offer(envelope, now)

    def topic_names(self) -> tuple[str, ...]:
        """The names of the classes read, for people."""
        return tuple(name_type(topic) for topic in self.topics)

    def statistics(self, now: float) -> ListenerStatistics:
        """How this reader keeps up at monotonic time `now`."""
        waiting = 0.0 if self._untouched_since is None else now - self._untouched_since
        return ListenerStatistics(
            client=self.client,
            kind=self.kind,
            topics=self.topic_names(),
            depth=len(self._mailbox),
            taken=self._taken,
            lost=self.lost,
            slow_count=self._slow_count,
            waiting_seconds=waiting,
            is_slow=waiting > self._slow_after_seconds,
        )

    @abstractmethod
    def _unpack(self, stored: Stored) -> Item:
        """Turn a stored entry into the reader's item."""

    def _note_waiting(self, now: float) -> None:
        if self._untouched_since is None:
            self._untouched_since = now
        elif now - self._untouched_since > self._slow_after_seconds:
            self._note_slow(now - self._untouched_since)

    def _note_slow(self, waited_seconds: float) -> None:
        if not self._is_slow:
            self._is_slow = True
            self._slow_count += 1
            self._bus.note_slow(self, waited_seconds)

    def _taken_out(self, stored: Stored) -> Item:
        now = self._bus.now()
        self._note_waiting(now)
        self._untouched_since = now if len(self._mailbox) else None
        self._is_slow = False
        self._taken += 1
        return self._unpack(stored)


class Watch(Subscription[Envelope[T], Envelope[T]]):
    """The newest value of one state, by key."""

    kind = "watch"

    def __init__(self, bus: "Bus", client: str, state: type[T], key: str | None, slow_after_seconds: float) -> None:
        self._slots: Slots[str, Envelope[T]] = Slots()
        self._key = key
        super().__init__(bus, client, (state,), self._slots, slow_after_seconds)

    def offer(self, envelope: Envelope[Any], now: float) -> None:
        """Keep the envelope for the reader."""
        if self._key is None or self._key == envelope.key:
            self._slots.put_nowait(envelope.key, envelope)
            if self._untouched_since is None:  # spares a call on the hottest path
                self._untouched_since = now
            else:
                self._note_waiting(now)

    def _unpack(self, stored: Envelope[T]) -> Envelope[T]:
        return stored


class WatchAll(Subscription[bool, Item]):
    """The newest values of several unkeyed states together."""

    kind = "watch_all"

    def __init__(self, bus: "Bus", client: str, states: Sequence[type], slow_after_seconds: float) -> None:
        self._changed: Slots[str, bool] = Slots()
        self._newest: dict[type, Envelope[Any] | None] = dict.fromkeys(states)
        super().__init__(bus, client, states, self._changed, slow_after_seconds)

    def offer(self, envelope: Envelope[Any], now: float) -> None:
        """Keep the envelope for the reader."""
        if not envelope.key:
            self._newest[type(envelope.value)] = None if envelope.retracted else envelope
            self._changed.put_nowait("", value=True)
            self._note_waiting(now)

    def _unpack(self, _stored: object) -> Item:
        newest: Any = tuple(self._newest.values())
        # the mailbox holds only a mark of the change; the overloads of Bus.watch_all give the type
        return cast("Item", newest)


class Listen(Subscription[tuple[Envelope[T], int], Envelope[T]]):
    """Facts in order, bounded; as a tap, all envelopes."""

    kind = "listen"

    def __init__(
        self,
        bus: "Bus",
        client: str,
        facts: Sequence[type],
        limit: int,
        slow_after_seconds: float,
        *,
        after: int | None = None,
    ) -> None:
        self.after = after
        self._queue: BoundedQueue[Envelope[T]] = BoundedQueue(limit)
        super().__init__(bus, client, facts, self._queue, slow_after_seconds)

    def offer(self, envelope: Envelope[Any], now: float) -> None:
        """Keep the envelope for the reader."""
        if not self._queue.put_nowait(envelope):
            self.lost += 1
        self._note_waiting(now)

    def catch_up(self, envelope: Envelope[Any], now: float) -> None:
        """Ignore retained states, which are not for listeners."""

    def _unpack(self, stored: tuple[Envelope[T], int]) -> Envelope[T]:
        envelope, lag = stored
        return replace(envelope, lag=lag) if lag else envelope
