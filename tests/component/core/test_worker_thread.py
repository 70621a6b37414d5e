import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import ThreadStuck, WorkersExhausted
from tests.support.waiting import PATIENCE_SECONDS, wait_until

AT_ONCE = 0.02


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What hanging calls wait for; set at the end, so that no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


@asynccontextmanager
async def working(stuck_limit: int = 2) -> AsyncIterator[WorkerThread]:
    worker = WorkerThread("files", stuck_limit=stuck_limit)
    try:
        yield worker
    finally:
        worker.close()


async def test_calls_run_one_after_the_other_in_one_thread() -> None:
    """All calls meet in the same thread, which is not the loop's."""
    async with working() as worker:
        names: list[str] = []

        async def one() -> None:
            name = lambda: threading.current_thread().name  # noqa: E731  # what a caller passes
            names.append(await worker.run(name, timeout_seconds=PATIENCE_SECONDS, what="name"))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
        assert names == ["files"] * 3
        assert [thread.name for thread in threading.enumerate()].count("files") == 1


async def test_error_of_the_call_reaches_the_caller_and_harms_nothing() -> None:
    """Whatever the call raises is raised here, a TimeoutError of its own included."""

    def fail() -> None:
        raise TimeoutError("the file said so")

    async with working() as worker:
        with pytest.raises(TimeoutError, match="the file said so"):
            await worker.run(fail, timeout_seconds=PATIENCE_SECONDS, what="reading")
        assert await worker.run(lambda: 7, timeout_seconds=PATIENCE_SECONDS, what="adding") == 7


async def test_hanging_call_is_left_at_its_deadline_and_its_thread_used_no_more(release: threading.Event) -> None:
    """The caller is told at once, the next call has a fresh thread, and the stuck one is named until it is free."""
    async with working() as worker:
        with pytest.raises(ThreadStuck, match=r"reading /sys/x did not return within 0.02 s"):
            await worker.run(release.wait, timeout_seconds=AT_ONCE, what="reading /sys/x")
        assert worker.stuck() == ("reading /sys/x",)
        assert await worker.run(lambda: 7, timeout_seconds=PATIENCE_SECONDS, what="adding") == 7
        release.set()
        await wait_until(lambda: not worker.stuck())


async def test_stuck_threads_are_bounded(release: threading.Event) -> None:
    """Past the limit no call is tried; when one comes free, calls are tried again."""
    async with working(stuck_limit=2) as worker:
        for what in ("one", "two"):
            with pytest.raises(ThreadStuck):
                await worker.run(release.wait, timeout_seconds=AT_ONCE, what=what)
        with pytest.raises(WorkersExhausted, match="2 threads are stuck already in one, two"):
            await worker.run(lambda: 7, timeout_seconds=PATIENCE_SECONDS, what="adding")
        release.set()
        await wait_until(lambda: not worker.stuck())
        assert await worker.run(lambda: 7, timeout_seconds=PATIENCE_SECONDS, what="adding") == 7


async def test_cancelled_caller_leaves_the_call_to_its_thread(release: threading.Event) -> None:
    """Nobody waits for a call whose caller has gone, and its late result goes nowhere."""
    async with working() as worker:
        with anyio.move_on_after(AT_ONCE):
            await worker.run(release.wait, timeout_seconds=PATIENCE_SECONDS, what="waiting")
        assert worker.stuck() == ("waiting",)
        release.set()
        await wait_until(lambda: not worker.stuck())


async def test_a_short_call_is_stood_still_for() -> None:
    """What ends within the patience is returned or raised in this very turn of the loop, by the thread as ever."""

    def fail() -> None:
        raise OSError("the disk said so")

    async with working() as worker:
        promptly = partial(
            worker.run, patience_seconds=PATIENCE_SECONDS, timeout_seconds=PATIENCE_SECONDS, what="writing"
        )
        turns: list[int] = []
        asyncio.get_running_loop().call_soon(turns.append, 1)
        assert await promptly(lambda: threading.current_thread().name) == "files"
        with pytest.raises(OSError, match="the disk said so"):
            await promptly(fail)
        assert turns == []
        assert await promptly(lambda: 7) == 7


async def test_a_long_call_is_awaited_and_others_wait_for_it(release: threading.Event) -> None:
    """Past the patience the loop goes on; the next call has its turn after this one."""
    async with working() as worker:
        order: list[str] = []

        def last() -> None:
            release.wait()
            order.append("first")

        async def promptly(call: Callable[[], None], seconds: float) -> None:
            await worker.run(call, patience_seconds=seconds, timeout_seconds=PATIENCE_SECONDS, what="waiting")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(promptly, last, AT_ONCE)
            tasks.start_soon(promptly, lambda: order.append("second"), PATIENCE_SECONDS)
            await wait_all_tasks_blocked()
            release.set()
        assert order == ["first", "second"]


async def test_a_call_that_outlasts_patience_and_deadline_is_left(release: threading.Event) -> None:
    """The deadline counts on where the patience ended, and the thread is used no more."""
    async with working() as worker:
        with pytest.raises(ThreadStuck, match=r"reading /sys/x did not return within 0.02 s"):
            await worker.run(release.wait, patience_seconds=AT_ONCE, timeout_seconds=AT_ONCE, what="reading /sys/x")
        assert worker.stuck() == ("reading /sys/x",)
        assert await worker.run(lambda: 7, timeout_seconds=PATIENCE_SECONDS, what="adding") == 7
        release.set()
        await wait_until(lambda: not worker.stuck())


async def test_close_without_a_thread_is_nothing() -> None:
    """A worker that was never used has nothing to end."""
    WorkerThread("files").close()


def test_result_that_comes_after_the_loop_is_dropped(release: threading.Event) -> None:
    """A call that returns when the loop is closed ends its thread without a word."""
    worker = WorkerThread("files")

    async def give_up() -> None:
        with pytest.raises(ThreadStuck):
            await worker.run(release.wait, timeout_seconds=AT_ONCE, what="waiting")

    anyio.run(give_up)
    release.set()
