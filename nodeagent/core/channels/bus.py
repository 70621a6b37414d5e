"""The bus: how components publish states and facts to one another.

The contract

1. The exact class of a value is the topic. A state may have a key; facts have no key.
2. A state is retained and whole. Publishing a state equal to the retained state changes nothing and wakes no reader.
   A watcher sees the newest state and may skip older states; a late watcher gets the retained state at once.
3. A fact is queued for each listener, in order, up to a limit. Past the limit the oldest fact goes; `lag` of the next
   taken item counts the facts lost just before. A listener hears new facts; a listener with `after`, the number of an
   envelope, first hears the facts since that envelope, as far as the history goes back.
4. Publishing never blocks, never fails because of a listener, and is done only in the thread of the event loop, where
   the bus was built. Other threads hand values over to the loop.
5. An exception of a listener surfaces in the listener. A listener that leaves an item waiting for seconds is named in
   the log and counted; no publisher waits.
6. Durable data do not ride the bus: they are written first, then published as written.
7. Every envelope has a number, time, source and cause, so that one chain follows an event through.
   The history counts repeated facts, and keeps the causes of present conditions.

Owns the retained states, the queues and the recent history. Refuses requests with an answer: these go by a port.

    with bus.watch(Inventory, client="labeler") as inventories:
        async for inventory in inventories:
            ...
"""

import threading
from collections.abc import Iterable
from typing import Any, Final, TypeVar, overload

from nodeagent.core.channels.envelope import Cause, Envelope, cause_of, name_type
from nodeagent.core.channels.history import History
from nodeagent.core.channels.subscription import (
    BusStatistics,
    Listen,
    PublisherStatistics,
    Subscription,
    Watch,
    WatchAll,
)
from nodeagent.core.clock import Clock
from nodeagent.core.errors import PublishedFromForeignThread
from nodeagent.core.log.lines import get_logger

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")

_EVERYTHING: Final = object
"""The topic of taps: the base of every class, never published itself."""

_log = get_logger(component="bus")


class Bus:
    """The bus of the process; the module's docstring is the contract."""

    def __init__(
        self,
        clock: Clock,
        *,
        fact_queue_limit: int = 256,
        slow_after_seconds: float = 5.0,
        history: int = 512,
    ) -> None:
        self._clock = clock
        self._fact_queue_limit = fact_queue_limit
        self._slow_after_seconds = slow_after_seconds
        self._thread = threading.get_ident()
        self._seq = 0
        self._retained: dict[type, dict[str, Envelope[Any]]] = {}
        # replaced, never changed, so that a publish under way goes on with the old tuple
        self._subscriptions: dict[type, tuple[Subscription[Any, Any], ...]] = {}
        self._published: dict[tuple[str, type], int] = {}
        self._history = History(history)

    def publish_state(self, value: T, *, source: str, key: str = "", cause: Cause = None) -> Envelope[T]:
        """Publish the present state; returns the retained envelope, for an equal value the earlier envelope."""
        self._check_thread(value)
        by_key = self._retained.get(type(value))
        if by_key is None:
            by_key = self._retained[type(value)] = {}
        retained = by_key.get(key)
        if retained is not None and retained.value == value:
            return retained
        by_key[key] = envelope = self._seal(value, source, key, cause)
        self._history.add(envelope)
        self._deliver(envelope)
        return envelope

    def publish_fact(self, value: T, *, source: str, cause: Cause = None) -> Envelope[T]:
        """Publish an event."""
        self._check_thread(value)
        envelope = self._seal(value, source, "", cause)
        self._history.add_fact(envelope)
        self._deliver(envelope)
        return envelope

    def retract_state(self, state: type, key: str = "", *, source: str = "", cause: Cause = None) -> None:
        """Retract a state whose object is gone; without a retained state nothing changes.

        Watchers of the class get an envelope with the last value and `retracted` set; watchers of several classes see
        `None` instead.
        """
        retained = self._retained.get(state, {}).get(key)
        if retained is None:
            return
        self._check_thread(retained.value)
        del self._retained[state][key]
        envelope = self._seal(retained.value, source or retained.source, key, cause, retracted=True)
        self._history.add(envelope)
        self._deliver(envelope)

    def latest(self, state: type[T], key: str = "") -> Envelope[T] | None:
        """The retained state, if any."""
        return self._retained.get(state, {}).get(key)

    def read(self, state: type[T]) -> T | None:
        """The value of the retained state, if any."""
        envelope = self.latest(state)
        return None if envelope is None else envelope.value

    def watch(self, state: type[T], *, client: str, key: str | None = "") -> Watch[T]:
        """The newest value of a state; `key=None` watches all keys, each newest on its own."""
        return Watch(self, client, state, key, self._slow_after_seconds)

    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], /, *, client: str
    ) -> WatchAll[tuple[Envelope[T1] | None, Envelope[T2] | None]]: ...
    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], c: type[T3], /, *, client: str
    ) -> WatchAll[tuple[Envelope[T1] | None, Envelope[T2] | None, Envelope[T3] | None]]: ...
    @overload
    def watch_all(self, *states: type, client: str) -> WatchAll[Any]: ...
    def watch_all(self, *states: type, client: str) -> WatchAll[Any]:
        """The newest values of several unkeyed states, from the first published state on, at each change."""
        return WatchAll(self, client, states, self._slow_after_seconds)

    @overload
    def listen(self, a: type[T1], /, *, client: str, after: int | None = None) -> Listen[T1]: ...
    @overload
    def listen(self, a: type[T1], b: type[T2], /, *, client: str, after: int | None = None) -> Listen[T1 | T2]: ...
    @overload
    def listen(self, *facts: type, client: str, after: int | None = None) -> Listen[Any]: ...
    def listen(self, *facts: type, client: str, after: int | None = None) -> Listen[Any]:
        """Facts of the classes, in order, from now on, or from `after` on: 0 is the beginning."""
        return Listen(self, client, facts, self._fact_queue_limit, self._slow_after_seconds, after=after)

    def tap(self, *, client: str) -> Listen[Any]:
        """Every envelope, state or fact, in order, from now on."""
        return Listen(self, client, (_EVERYTHING,), self._fact_queue_limit, self._slow_after_seconds)

    def history(self) -> tuple[Envelope[Any], ...]:
        """Recent envelopes, oldest first, for following causes."""
        return self._history.envelopes()

    def keep(self, causes: Iterable[int]) -> None:
        """Keep the causes of present conditions in the history, until the next call with other causes."""
        self._history.keep(causes)

    def statistics(self) -> BusStatistics:
        """Publishers, listeners and waiting items."""
        every = {id(each): each for topic in self._subscriptions.values() for each in topic}
        return BusStatistics(
            published=self._seq,
            retained=sum(len(by_key) for by_key in self._retained.values()),
            publishers=tuple(
                PublisherStatistics(source, name_type(topic), count)
                for (source, topic), count in sorted(self._published.items(), key=lambda item: (item[0][0], -item[1]))
            ),
            listeners=tuple(each.statistics(self.now()) for each in every.values()),
        )

    def attach(self, subscription: Subscription[Any, Any]) -> None:
        """For subscriptions: begin delivery of the topics, retained states first."""
        for topic in subscription.topics:
            self._subscriptions[topic] = (*self._subscriptions.get(topic, ()), subscription)
            for envelope in self._retained.get(topic, {}).values():
                subscription.catch_up(envelope, self.now())
        if subscription.after is not None:
            for envelope in self._history.envelopes():
                if envelope.seq > subscription.after and type(envelope.value) in subscription.topics:
                    subscription.offer(envelope, self.now())

    def detach(self, subscription: Subscription[Any, Any]) -> None:
        """For subscriptions: end delivery."""
        for topic in subscription.topics:
            self._subscriptions[topic] = tuple(
                other for other in self._subscriptions[topic] if other is not subscription
            )

    def now(self) -> float:
        """For subscriptions: the clock for measuring slowness."""
        return self._clock.monotonic()

    def note_slow(self, subscription: Subscription[Any, Any], waited_seconds: float) -> None:
        """For subscriptions: log a reader that has left items untouched for too long."""
        _log.warning(
            "listener_fell_behind",
            client=subscription.client,
            topics=subscription.topic_names(),
            waited_seconds=round(waited_seconds, 1),
        )

    def _check_thread(self, value: object) -> None:
        if threading.get_ident() != self._thread:
            raise PublishedFromForeignThread(threading.current_thread().name, type(value).__name__)

    def _seal(self, value: T, source: str, key: str, cause: Cause, *, retracted: bool = False) -> Envelope[T]:
        self._seq += 1
        return Envelope(value, key, self._seq, self._clock.wall(), source, cause_of(cause), 0, retracted)

    def _deliver(self, envelope: Envelope[Any]) -> None:
        topic = type(envelope.value)
        counted = (envelope.source, topic)
        self._published[counted] = self._published.get(counted, 0) + 1
        now = self._clock.monotonic()
        for subscription in self._subscriptions.get(topic, ()):
            subscription.offer(envelope, now)
        for tap in self._subscriptions.get(_EVERYTHING, ()):
            tap.offer(envelope, now)
