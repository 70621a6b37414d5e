"""The bus: how parts of the agent tell each other what is true and what happened.

The contract

1. The exact class of a value is its topic. A state may have a key; facts have none.
2. A state is retained and whole. Publishing one equal to the retained one changes nothing and wakes nobody.
   A watcher sees the newest and may skip older ones; one that comes late or again gets the retained state at once.
3. A fact is queued for each listener, in order, up to a limit. Past it the oldest goes; the next item a listener
   takes carries in `lag` how many went just before it. A listener hears what comes; one that names the number of an
   envelope hears first what followed that one, as far as the history still has it.
4. Publishing never blocks, never fails because of a listener, and is done only in the thread that built the bus:
   the event loop's. Other threads hand their values to the loop.
5. What a listener raises surfaces in the listener. One that leaves an item waiting for seconds is named in the log
   and counted; nobody waits for it.
6. What must not be lost does not ride the bus: it is written first, then published as written.
7. Every envelope says its number, time, source and what caused it, so that one chain follows an event through.
   The history counts what repeats itself, and keeps what led to something that is still wrong.

Owns the retained states, the queues and the recent history. Refuses requests that need an answer: those go by a port.

    with bus.watch(Inventory, client="labeler") as inventories:
        async for inventory in inventories:
            ...
"""

import threading
from collections.abc import Iterable
from typing import Any, Final, TypeVar, overload

from nodeagent.core.channels.envelope import Cause, Envelope, cause_of
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
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
T7 = TypeVar("T7")

_EVERYTHING: Final = object
"""The topic of taps: every class derives from it, and nobody publishes a bare one."""

_log = get_logger(component="bus")


class Bus:
    """One per process; the module's docstring is its contract."""

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
        # replaced, never changed, so that a publish under way goes through the tuple it found
        self._subscriptions: dict[type, tuple[Subscription[Any, Any], ...]] = {}
        self._published: dict[tuple[str, type], int] = {}
        self._history = History(history)

    def publish_state(self, value: T, *, source: str, key: str = "", cause: Cause = None) -> Envelope[T]:
        """Say what is true now; the envelope retained is returned, which for an equal value is the earlier one."""
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
        """Say what happened."""
        self._check_thread(value)
        envelope = self._seal(value, source, "", cause)
        self._history.add_fact(envelope)
        self._deliver(envelope)
        return envelope

    def retract_state(self, state: type, key: str = "", *, source: str = "", cause: Cause = None) -> None:
        """Say that the thing this state was about is gone; retracting what is not retained changes nothing.

        Watchers of the class get an envelope with `retracted` set that holds the last value; watchers of several
        classes see None in its place.
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

    def latest_all(self, state: type[T]) -> dict[str, Envelope[T]]:
        """The retained states of all keys."""
        return dict(self._retained.get(state, {}))

    def watch(self, state: type[T], *, client: str, key: str | None = "") -> Watch[T]:
        """The newest of one state; `key=None` watches all keys, each newest on its own."""
        return Watch(self, client, state, key, self._slow_after_seconds)

    @overload
    def watch_all(self, a: type[T1], /, *, client: str) -> WatchAll[tuple[Envelope[T1] | None]]: ...
    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], /, *, client: str
    ) -> WatchAll[tuple[Envelope[T1] | None, Envelope[T2] | None]]: ...
    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], c: type[T3], /, *, client: str
    ) -> WatchAll[tuple[Envelope[T1] | None, Envelope[T2] | None, Envelope[T3] | None]]: ...
    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], c: type[T3], d: type[T4], /, *, client: str
    ) -> WatchAll[tuple[Envelope[T1] | None, Envelope[T2] | None, Envelope[T3] | None, Envelope[T4] | None]]: ...
    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], c: type[T3], d: type[T4], e: type[T5], /, *, client: str
    ) -> WatchAll[
        tuple[
            Envelope[T1] | None,
            Envelope[T2] | None,
            Envelope[T3] | None,
            Envelope[T4] | None,
            Envelope[T5] | None,
        ]
    ]: ...
    @overload
    def watch_all(
        self, a: type[T1], b: type[T2], c: type[T3], d: type[T4], e: type[T5], f: type[T6], /, *, client: str
    ) -> WatchAll[
        tuple[
            Envelope[T1] | None,
            Envelope[T2] | None,
            Envelope[T3] | None,
            Envelope[T4] | None,
            Envelope[T5] | None,
            Envelope[T6] | None,
        ]
    ]: ...
    @overload
    def watch_all(self, *states: type, client: str) -> WatchAll[Any]: ...
    def watch_all(self, *states: type, client: str) -> WatchAll[Any]:
        """The newest of several unkeyed states together, as soon as one is known and whenever one changes."""
        return WatchAll(self, client, states, self._slow_after_seconds)

    @overload
    def listen(self, a: type[T1], /, *, client: str, after: int | None = None) -> Listen[T1]: ...
    @overload
    def listen(self, a: type[T1], b: type[T2], /, *, client: str, after: int | None = None) -> Listen[T1 | T2]: ...
    @overload
    def listen(
        self, a: type[T1], b: type[T2], c: type[T3], /, *, client: str, after: int | None = None
    ) -> Listen[T1 | T2 | T3]: ...
    @overload
    def listen(
        self, a: type[T1], b: type[T2], c: type[T3], d: type[T4], /, *, client: str
    ) -> Listen[T1 | T2 | T3 | T4]: ...
    @overload
    def listen(self, *facts: type, client: str, after: int | None = None) -> Listen[Any]: ...
    def listen(self, *facts: type, client: str, after: int | None = None) -> Listen[Any]:
        """Facts of any of these classes, in order, from now on, or from `after` on: 0 is the beginning."""
        return Listen(self, client, facts, self._fact_queue_limit, self._slow_after_seconds, after=after)

    def tap(self, *, client: str) -> Listen[Any]:
        """Every envelope, state or fact, in order, from now on."""
        return Listen(self, client, (_EVERYTHING,), self._fact_queue_limit, self._slow_after_seconds)

    def history(self) -> tuple[Envelope[Any], ...]:
        """Recent envelopes, oldest first, for following causes."""
        return self._history.envelopes()

    def keep(self, causes: Iterable[int]) -> None:
        """These envelopes led to what is still wrong: the history keeps them until it is told others."""
        self._history.keep(causes)

    def statistics(self) -> BusStatistics:
        """Who publishes, who listens, how much waits."""
        every = {id(each): each for topic in self._subscriptions.values() for each in topic}
        return BusStatistics(
            published=self._seq,
            retained=sum(len(by_key) for by_key in self._retained.values()),
            publishers=tuple(
                PublisherStatistics(source, topic.__name__, count)
                for (source, topic), count in sorted(self._published.items(), key=lambda item: (item[0][0], -item[1]))
            ),
            listeners=tuple(each.statistics(self.now()) for each in every.values()),
        )

    def attach(self, subscription: Subscription[Any, Any]) -> None:
        """For subscriptions: be told of everything published on their topics, first of what is retained."""
        for topic in subscription.topics:
            self._subscriptions[topic] = (*self._subscriptions.get(topic, ()), subscription)
            for envelope in self._retained.get(topic, {}).values():
                subscription.catch_up(envelope, self.now())
        if subscription.after is not None:
            for envelope in self._history.envelopes():
                if envelope.seq > subscription.after and type(envelope.value) in subscription.topics:
                    subscription.offer(envelope, self.now())

    def detach(self, subscription: Subscription[Any, Any]) -> None:
        """For subscriptions: be told of nothing more."""
        for topic in subscription.topics:
            self._subscriptions[topic] = tuple(
                other for other in self._subscriptions[topic] if other is not subscription
            )

    def now(self) -> float:
        """For subscriptions: the clock that slowness is measured on."""
        return self._clock.monotonic()

    def note_slow(self, subscription: Subscription[Any, Any], waited_seconds: float) -> None:
        """For subscriptions: one has left its items untouched for too long."""
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
