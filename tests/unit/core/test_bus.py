import threading
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.envelope import Envelope
from nodeagent.core.channels.gathered import Gathered, decide_pause
from nodeagent.core.channels.news import News
from nodeagent.core.errors import PublishedFromForeignThread
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time


@dataclass(frozen=True)
class Temperature:
    celsius: int


@dataclass(frozen=True)
class Load:
    percent: int


@dataclass(frozen=True)
class Broke:
    what: str


@pytest.fixture
def bus(clock: FakeClock) -> Bus:
    return Bus(clock, fact_queue_limit=3, slow_after_seconds=5, history=16)


async def test_late_watcher_gets_the_retained_state_at_once(bus: Bus) -> None:
    """A state published before the watch began is its first item."""
    bus.publish_state(Temperature(40), source="sensor")
    with bus.watch(Temperature, client="late") as changes:
        envelope = await anext(changes)
    assert envelope.value == Temperature(40)
    assert envelope.source == "sensor"


async def test_equal_state_is_suppressed_and_the_retained_envelope_returned(bus: Bus) -> None:
    """Publishing what is retained already wakes nobody and makes no envelope."""
    first = bus.publish_state(Temperature(40), source="sensor")
    with bus.watch(Temperature, client="w") as changes:
        assert changes.take_nowait() is first
        again = bus.publish_state(Temperature(40), source="other")
        assert again is first
        assert changes.take_nowait() is None
    assert bus.statistics().published == 1


async def test_watcher_skips_to_the_newest(bus: Bus) -> None:
    """A watcher that was away sees only the last of what it missed."""
    with bus.watch(Temperature, client="w") as changes:
        for celsius in (1, 2, 3):
            bus.publish_state(Temperature(celsius), source="s")
        assert (await anext(changes)).value == Temperature(3)
        assert changes.take_nowait() is None


async def test_sleeping_watcher_is_woken(bus: Bus) -> None:
    """A watcher that waits gets what is published meanwhile."""
    seen: list[Temperature] = []

    async def read() -> None:
        with bus.watch(Temperature, client="w") as changes:
            async for change in changes:
                seen.append(change.value)
                if change.value.celsius == 2:
                    return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for celsius in (1, 2):
            await anyio.sleep(1)
            bus.publish_state(Temperature(celsius), source="s")
    assert seen == [Temperature(1), Temperature(2)]


async def test_keyed_watch_sees_only_its_key_and_keyless_sees_each_newest(bus: Bus) -> None:
    """Keys are separate states of one class."""
    with (
        bus.watch(Temperature, client="one", key="gpu1") as one,
        bus.watch(Temperature, client="all", key=None) as every,
    ):
        bus.publish_state(Temperature(1), source="s", key="gpu0")
        bus.publish_state(Temperature(2), source="s", key="gpu1")
        bus.publish_state(Temperature(3), source="s", key="gpu0")
        assert [change.value.celsius for change in iter(one.take_nowait, None)] == [2]
        assert [(change.key, change.value.celsius) for change in iter(every.take_nowait, None)] == [
            ("gpu0", 3),
            ("gpu1", 2),
        ]


async def test_retraction_reaches_watchers_and_forgets_the_state(bus: Bus) -> None:
    """A retracted state is gone for late readers; present ones get the last value, marked."""
    cause = bus.publish_state(Temperature(1), source="s", key="gpu0")
    with bus.watch(Temperature, client="all", key=None) as changes:
        changes.take_nowait()
        bus.retract_state(Temperature, "gpu0", cause=cause)
        bus.retract_state(Temperature, "gpu0")
        gone = await anext(changes)
        assert (gone.retracted, gone.key, gone.value, gone.cause) == (True, "gpu0", Temperature(1), cause.seq)
        assert changes.take_nowait() is None
    assert bus.latest(Temperature, "gpu0") is None
    assert bus.publish_state(Temperature(1), source="s", key="gpu0").seq > cause.seq


async def test_watch_all_gives_the_newest_of_each_and_none_for_the_unknown(bus: Bus) -> None:
    """Several states come together; one that is unknown, retracted or only keyed is None."""
    with bus.watch_all(Temperature, Load, client="both") as changes:
        assert changes.take_nowait() is None
        bus.publish_state(Load(1), source="s", key="keyed")
        assert changes.take_nowait() is None
        bus.publish_state(Load(7), source="s")
        temperature, load = await anext(changes)
        assert temperature is None
        assert load is not None
        assert load.value == Load(7)
        bus.publish_state(Temperature(30), source="s")
        bus.retract_state(Load)
        temperature, load = await anext(changes)
        assert temperature is not None
        assert load is None


async def test_listener_gets_facts_in_order_from_now_on(bus: Bus) -> None:
    """Facts before the listening are not replayed; those after come in order, of every class asked for."""
    bus.publish_fact(Broke("before"), source="s")
    with bus.listen(Broke, Load, client="l") as facts:
        bus.publish_fact(Broke("fan"), source="s")
        bus.publish_fact(Load(3), source="s")
        assert [(await anext(facts)).value for _ in range(2)] == [Broke("fan"), Load(3)]


async def test_overflow_drops_the_oldest_and_says_how_many(bus: Bus) -> None:
    """Past its limit a listener loses the oldest facts, and the next item counts them."""
    with bus.listen(Broke, client="l") as facts:
        for number in range(5):
            bus.publish_fact(Broke(str(number)), source="s")
        taken = [(await anext(facts)) for _ in range(3)]
        assert [(fact.value.what, fact.lag) for fact in taken] == [("2", 2), ("3", 0), ("4", 0)]
        (statistics,) = bus.statistics().listeners
        assert (statistics.lost, statistics.taken, statistics.depth) == (2, 3, 0)


async def test_sleeping_listener_is_woken_and_nowait_never_waits(bus: Bus) -> None:
    """A listener that waits gets the fact published meanwhile."""
    with bus.listen(Broke, client="l") as facts:
        assert facts.take_nowait() is None
        async with anyio.create_task_group() as tasks:

            async def publish() -> None:
                await anyio.sleep(1)
                bus.publish_fact(Broke("late"), source="s")
                bus.publish_fact(Broke("later"), source="s")

            tasks.start_soon(publish)
            assert (await anext(facts)).value == Broke("late")
        assert (await anext(facts)).value == Broke("later")


async def test_tap_sees_states_and_facts(bus: Bus) -> None:
    """The tap of the event stream gets everything published, retractions included."""
    with bus.tap(client="stream") as everything:
        bus.publish_state(Load(1), source="s")
        bus.publish_fact(Broke("x"), source="s")
        bus.retract_state(Load)
        seen = [await anext(everything) for _ in range(3)]
    assert [(type(each.value).__name__, each.retracted) for each in seen] == [
        ("Load", False),
        ("Broke", False),
        ("Load", True),
    ]


async def test_causes_link_envelopes_in_history(bus: Bus) -> None:
    """An envelope names what led to it, by envelope or by number, and history holds both."""
    broke = bus.publish_fact(Broke("x"), source="driver")
    load = bus.publish_state(Load(0), source="health", cause=broke)
    hot = bus.publish_state(Temperature(9), source="labels", cause=load.seq)
    assert (broke.cause, load.cause, hot.cause) == (None, broke.seq, load.seq)
    assert bus.history() == (broke, load, hot)


async def test_busy_topic_cannot_push_rare_ones_out_of_history(clock: FakeClock) -> None:
    """One class holds at most its share of the ring, and all together at most the ring."""
    bus = Bus(clock, history=16)
    rare = bus.publish_fact(Broke("once"), source="s")
    for percent in range(100):
        bus.publish_state(Load(percent), source="s")
    assert rare in bus.history()
    assert [each.value for each in bus.history()[1:]] == [Load(98), Load(99)]


async def test_history_is_bounded_over_many_topics(clock: FakeClock) -> None:
    """With more classes than shares the oldest envelopes go, whatever they are."""
    bus = Bus(clock, history=4)
    topics = [type(f"Topic{number}", (), {}) for number in range(6)]
    for topic in topics:
        bus.publish_fact(topic(), source="s")
    assert [type(each.value) for each in bus.history()] == topics[2:]


async def test_publishing_from_a_thread_is_refused_with_a_remedy(bus: Bus) -> None:
    """Only the thread of the bus publishes; any other is told at once what to do instead."""
    refused: list[PublishedFromForeignThread] = []

    def publish() -> None:
        for attempt in (
            lambda: bus.publish_state(Load(1), source="t"),
            lambda: bus.publish_fact(Load(1), source="t"),
            lambda: bus.retract_state(Temperature),
        ):
            with pytest.raises(PublishedFromForeignThread, match="call_soon_threadsafe") as caught:
                attempt()
            refused.append(caught.value)

    bus.publish_state(Temperature(1), source="s")
    thread = threading.Thread(target=publish, name="poller")
    thread.start()
    thread.join()
    assert [error.thread for error in refused] == ["poller"] * 3
    assert bus.latest(Load) is None


async def test_slow_listener_is_named_and_counted_once_per_episode(bus: Bus, log_lines: list[dict[str, Any]]) -> None:
    """A reader that leaves items untouched past the limit is logged once, and again only after it took something."""
    with bus.listen(Broke, client="sleepy") as facts:
        for _ in range(4):
            bus.publish_fact(Broke("x"), source="s")
            await anyio.sleep(3)
        assert bus.statistics().listeners[0].is_slow
        assert facts.take_nowait() is not None
        assert not bus.statistics().listeners[0].is_slow
        await anyio.sleep(6)
        assert facts.take_nowait() is not None
        assert bus.statistics().listeners[0].slow_count == 2
    assert [(line["event"], line["client"]) for line in log_lines] == [("listener_fell_behind", "sleepy")] * 2


async def test_endless_reader_stays_cancellable(bus: Bus) -> None:
    """A reader that always finds something still gives the loop its turn."""
    with bus.watch(Load, client="greedy") as changes:
        bus.publish_state(Load(0), source="s")
        with anyio.CancelScope() as scope:
            async for change in changes:
                bus.publish_state(Load(change.value.percent + 1), source="s")
                if change.value.percent == 10:
                    scope.cancel()
        assert scope.cancelled_caught


async def test_two_tasks_on_one_subscription_are_refused(bus: Bus) -> None:
    """A second reader on the same subscription is a mistake that is named."""
    with bus.watch(Load, client="shared") as changes:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(changes.__anext__)
            await anyio.sleep(1)
            with pytest.raises(RuntimeError, match="two tasks"):
                await anext(changes)
            tasks.cancel_scope.cancel()


async def test_statistics_name_publishers_and_readers(bus: Bus) -> None:
    """The debug view says who publishes what, how often, and who reads."""
    with bus.watch(Load, client="reader"), bus.tap(client="stream"):
        for percent in (1, 2):
            bus.publish_state(Load(percent), source="sampler")
        bus.publish_fact(Broke("x"), source="driver")
        statistics = bus.statistics()
    assert [(each.source, each.type_name, each.count) for each in statistics.publishers] == [
        ("driver", "Broke", 1),
        ("sampler", "Load", 2),
    ]
    assert {(each.client, each.kind, each.depth) for each in statistics.listeners} == {
        ("reader", "watch", 1),
        ("stream", "listen", 3),
    }
    assert (statistics.published, statistics.retained) == (3, 1)
    assert bus.statistics().listeners == ()


@pytest.mark.parametrize(
    ("after", "heard"), [(0, ["first", "second", "third"]), (1, ["second", "third"]), (None, ["third"])]
)
async def test_a_listener_can_hear_what_it_missed(bus: Bus, after: int | None, heard: list[str]) -> None:
    """From the envelope that it names on, in order, its own facts only, and each once."""
    bus.publish_fact(Broke("first"), source="s")
    bus.publish_state(Temperature(1), source="s")
    bus.publish_fact(Broke("second"), source="s")
    with bus.listen(Broke, client="late", after=after) as facts:
        bus.publish_fact(Broke("third"), source="s")
        assert [(await anext(facts)).value.what for _ in heard] == heard
        assert facts.take_nowait() is None


@pytest.mark.parametrize(
    ("sent", "wanted", "ago", "pause"),
    [
        (None, "one", 0.0, 0.0),
        ("one", "one", 0.0, None),
        ("one", "other", 0.0, 0.05),
        ("one", "other", 0.04, 0.01),
        ("one", "other", 1.0, 0.0),
    ],
)
def test_changes_are_gathered_for_a_moment(sent: str | None, wanted: str, ago: float, pause: float | None) -> None:
    """The first goes at once, an equal one never, a changed one when the window since the first change is over."""
    assert decide_pause(sent, wanted, ago, 0.05) == pytest.approx(pause)


async def test_a_reader_is_given_the_end_of_a_burst_once() -> None:
    """Three changes within the window are one, and an equal value is none."""
    gathered = Gathered("a")
    seen: list[str] = []

    async def read() -> None:
        known: str | None = None
        while True:
            known = await gathered.wait_other(known, 0.05)
            seen.append(known)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(1)
        assert not gathered.put("a")
        for value in "bcd":
            assert gathered.put(value)
            await anyio.sleep(0.01)
        assert seen == ["a"]
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert seen == ["a", "d"]
    assert gathered.value == "d"


def envelope(seq: int) -> Envelope[str]:
    return Envelope(value="", key="", seq=seq, time=0.0, source="test")


def test_the_newest_is_news_once() -> None:
    news, old, new = News(), envelope(3), envelope(5)
    assert news.take(old, new, None) is new
    assert news.take(old, new) is None
    assert news.take(envelope(6), new) is not None


def test_nothing_is_no_news() -> None:
    """A part that looks before anybody has said anything has no cause."""
    assert News().take(None, None) is None
