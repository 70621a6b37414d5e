import asyncio
import selectors
import socket
import sys
import threading
import time

import anyio
import anyio.to_thread
import pytest

from nodeagent.core.children import worker_thread
from tests.support import virtual_time
from tests.support.virtual_time import START_WALL, FakeClock, JumpingSelector

pytestmark = pytest.mark.virtual_time


async def test_a_day_passes_at_once_and_exactly(clock: FakeClock) -> None:
    """Sleepers wake in the order and at the very second they asked for."""
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        woken.append((name, clock.monotonic()))

    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep, "day", 86400)
        tasks.start_soon(sleep, "hour", 3600)
    assert woken == [("hour", 3600), ("day", 86400)]
    assert clock.wall() == START_WALL + 86400
    assert time.monotonic() - began < 30


async def test_clock_waits_for_a_busy_thread() -> None:
    """A timeout of an hour is not reached while a thread does its work, and is once it has done it."""
    with anyio.fail_after(3600):
        await anyio.to_thread.run_sync(time.sleep, 0.05)
    assert anyio.current_time() < 60
    await anyio.sleep(3600)
    assert anyio.current_time() >= 3600


def test_clock_waits_for_a_plain_thread_and_not_for_an_idle_one() -> None:
    """A thread of anybody's counts as busy unless it says that it is idle."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    with JumpingSelector() as selector:
        thread.start()
        selector.select(86400)
        waited = selector.now
        thread.is_idle = True  # type: ignore[attr-defined]  # what our own worker threads say of themselves
        selector.select(86400)
    done.set()
    thread.join()
    assert (waited < 3600, selector.now >= 86400) == (True, True)


async def test_clock_waits_until_a_worker_thread_has_announced_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has made its call and not said so yet is busy."""
    announce = worker_thread._Job.announce

    def announce_late(job: worker_thread._Job[None]) -> None:
        time.sleep(0.05)
        announce(job)

    monkeypatch.setattr(worker_thread._Job, "announce", announce_late)
    worker = worker_thread.WorkerThread("late")
    await worker.run(lambda: None, timeout_seconds=1, what="a call")
    worker.close()


def test_a_thread_that_is_soon_done_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the disk: only a thread that hangs for seconds moves the clock."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    with JumpingSelector() as selector:
        thread.start()
        for _ in range(5):
            selector.select(0.001)
        at_first = selector.now
        monkeypatch.setattr(virtual_time, "_UNNOTICED_SECONDS", 0.0)
        selector.select(0.001)
    done.set()
    thread.join()
    assert (at_first, selector.now > 0) == (0.0, True)


async def test_clock_waits_for_a_child_process() -> None:
    """A child that starts slowly is not overtaken by the clock."""
    with anyio.fail_after(3600):
        done = await anyio.run_process([sys.executable, "-c", "print('hello')"])
    assert done.stdout == b"hello\n"
    assert anyio.current_time() < 60


def test_work_that_ends_while_it_is_looked_for_is_heard_before_the_clock_jumps() -> None:
    """Between the look at descriptors and the look at who is at work a child may end, and its watcher with it."""
    ours, theirs = socket.socketpair()

    class Ending(JumpingSelector):
        def _is_work_outside(self) -> bool:
            theirs.sendall(b"it has ended")
            return False

    with ours, theirs, Ending() as selector:
        selector.register(ours, selectors.EVENT_READ)
        ((key, _),) = selector.select(3600)
        assert (key.fileobj, selector.now) == (ours, 0.0)


async def test_data_between_two_ends_here_is_seen_before_the_clock_jumps() -> None:
    """A message on its way through a socket arrives before the timeout of whoever waits for it."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        with anyio.fail_after(0.001):
            await loop.sock_sendall(ours, b"ping")
            assert await loop.sock_recv(theirs, 10) == b"ping"


def test_clock_outside_a_loop_stands_where_it_was_put(clock: FakeClock) -> None:
    """Plain tests move the clock by hand."""
    clock.advance(5)
    assert (clock.monotonic(), clock.wall()) == (5, START_WALL + 5)
