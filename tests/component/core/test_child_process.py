import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nodeagent.core.children.child_process import ChildProcess, ChildSettings
from nodeagent.core.errors import ChildDied, ChildStuck, ChildUnavailable, FrameTooLarge
from nodeagent.core.life.backoff import BackoffSettings
from tests.support.programs import child as child_module
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ARGV = (sys.executable, str(Path(child_module.__file__)))
ENV = {"PYTHONPATH": str(Path(child_module.__file__).parents[2]), "PYTHONUNBUFFERED": "1"}
FAST = ChildSettings(backoff=BackoffSettings(first_seconds=0.01, limit_seconds=0.05))


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[ChildProcess]:
    child = ChildProcess(options.pop("argv", ARGV), env=ENV, name="worker", **{"settings": FAST, **options})
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_SECONDS):
            await tasks.start(child.run)
            yield child
        tasks.cancel_scope.cancel()


async def ask(child: ChildProcess, text: str, timeout_seconds: float = PATIENCE_SECONDS) -> str:
    return (await child.request(text.encode(), timeout_seconds=timeout_seconds)).decode()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # a zombie whose new parent takes its time is dead all the same
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def test_answers_belong_to_their_requests() -> None:
    """Requests from several tasks each get their own answer, one after the other."""
    answers: dict[str, str] = {}

    async def one(text: str) -> None:
        answers[text] = await ask(child, text)

    async with running() as child:
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(one, f"echo {number}")
        statistics = child.statistics()
    assert answers == {f"echo {number}": f"echo {number}" for number in range(5)}
    assert (statistics.starts, statistics.stuck, statistics.died, statistics.left_behind) == (1, 0, 0, ())


async def test_large_payload_passes_in_both_directions() -> None:
    """A payload larger than a pipe's buffer arrives whole."""
    async with running() as child:
        text = "x" * 1_000_000
        assert await ask(child, text) == text


async def test_stuck_child_is_killed_and_replaced() -> None:
    """The caller gets an error at its deadline; the next request is answered by another process."""
    async with running() as child:
        first = int(await ask(child, "pid"))
        with pytest.raises(ChildStuck, match=f"pid {first}.*within 0.05 s"):
            await ask(child, "hang", timeout_seconds=0.05)
        second = int(await ask(child, "pid"))
        assert first != second
        assert not is_alive(first)
        assert child.statistics().stuck == 1
        assert child.statistics().died == 0


@pytest.mark.parametrize(
    ("order", "how"),
    [
        ("exit 3", "exited with status 3"),
        ("die SIGSEGV", "was killed by SIGSEGV"),
        ("garbage", r"sent what is no frame \(frame of 4294967295 bytes is over the limit"),
        ("close", "was killed by SIGKILL"),
    ],
)
async def test_death_is_told_to_who_waits_and_mended(order: str, how: str) -> None:
    """However the child ends, the pending request says how, and the next one is answered."""
    async with running() as child:
        with pytest.raises(ChildDied, match=how):
            await ask(child, order)
        assert await ask(child, "hello") == "hello"
        assert (child.statistics().died, child.statistics().starts) == (1, 2)


async def test_child_that_dies_without_reading_frees_who_still_writes() -> None:
    """A request stuck in a full pipe ends with the child, and the pipe is closed under nobody."""
    async with running() as child:
        with anyio.move_on_after(0.01):
            await ask(child, "late 0.2")
        pid = child.statistics().pid
        assert pid is not None
        async with anyio.create_task_group() as tasks:

            async def write_much() -> None:
                with pytest.raises(ChildDied, match="SIGKILL"):
                    await ask(child, "x" * 2_000_000)

            tasks.start_soon(write_much)
            await anyio.wait_all_tasks_blocked()
            os.kill(pid, signal.SIGKILL)
        assert await ask(child, "hello") == "hello"


async def test_cancelled_request_leaves_no_wrong_answer_behind() -> None:
    """An answer that comes after its caller has gone is not taken for the next one's."""
    async with running() as child:
        await ask(child, "warm up")
        with anyio.move_on_after(0.01):
            await ask(child, "late 0.1")
        assert await ask(child, "mine") == "mine"
        assert child.statistics().starts == 1


async def test_child_that_stopped_reading_is_stuck() -> None:
    """A closed pipe on a living child is no answer either: the deadline decides."""
    async with running() as child:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, child, "deafen")
                async for _event in child.unasked():
                    scope.cancel()
        with pytest.raises(ChildStuck):
            await ask(child, "hello", timeout_seconds=0.05)
        assert await ask(child, "hello") == "hello"


async def test_half_sent_request_costs_the_child_its_life() -> None:
    """After a caller has gone in the middle of sending, the next request meets a fresh child, not half a frame."""
    async with running() as child:
        with anyio.move_on_after(0.01):
            await ask(child, "late 3600")
        with anyio.move_on_after(0.05):
            await ask(child, "x" * 2_000_000)
        assert await ask(child, "hello") == "hello"
        assert child.statistics().starts == 2


async def test_unasked_frames_reach_the_reader() -> None:
    """What the child says by itself comes in order, across incarnations."""
    async with running() as child:
        await ask(child, "event one")
        with pytest.raises(ChildDied):
            await ask(child, "exit 0")
        await ask(child, "event two")
        events = child.unasked()
        assert [await anext(events), await anext(events)] == [b"one", b"two"]
        await events.aclose()  # type: ignore[attr-defined]  # an async generator behind the iterator it promises
        assert child.statistics().unasked_lost == 0


async def test_child_s_words_go_to_the_log(log_lines: list[dict[str, Any]]) -> None:
    """Lines on stderr, and prints that would garble the frames, become log lines with the pid."""
    async with running() as child:
        await ask(child, "say something is odd")
        await wait_until(lambda: "something is odd" in [line.get("line") for line in log_lines])
    said = [line["line"] for line in log_lines if line["event"] == "child_said"]
    assert said == ["child is up", "something is odd"]


async def test_child_has_nothing_of_ours_but_its_pipes(tmp_path: Path) -> None:
    """Files open in the agent are not open in the child."""
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        async with running() as child:
            # its three, the copy for answers, and the one that lists
            assert await ask(child, "descriptors") == "0 1 2 3 4"


async def test_payload_over_the_limit_is_refused_before_it_is_sent() -> None:
    """A request that is too large harms nobody."""
    async with running(settings=ChildSettings(max_payload_bytes=10)) as child:
        with pytest.raises(FrameTooLarge):
            await ask(child, "x" * 11)
        assert await ask(child, "x" * 10) == "x" * 10


async def test_program_that_cannot_start_is_said_and_tried_again(log_lines: list[dict[str, Any]]) -> None:
    """Without a child requests fail with the reason, at once when none is due in time."""
    settings = ChildSettings(backoff=BackoffSettings(first_seconds=0.01, factor=1000, limit_seconds=1000))
    async with running(argv=["/does/not/exist"], settings=settings) as child:
        await wait_until(lambda: child.statistics().starts == 2)
        await anyio.lowlevel.checkpoint()
        with pytest.raises(ChildUnavailable, match="could not be started"):
            await ask(child, "hello", timeout_seconds=0.5)
    assert [line["event"] for line in log_lines] == ["child_start_failed"] * 2


async def test_request_waits_for_a_child_that_is_due() -> None:
    """While the replacement is on its way the request waits for it, within its time."""
    settings = ChildSettings(backoff=BackoffSettings(first_seconds=0.2, jitter_low=1))
    async with running(settings=settings) as child:
        with pytest.raises(ChildDied):
            await ask(child, "exit 1")
        assert await ask(child, "hello") == "hello"


async def test_request_does_not_outwait_a_child_that_will_not_go() -> None:
    """While a killed child is waited for there is no other; a request gives up at its own deadline."""
    settings = ChildSettings(backoff=FAST.backoff, kill_seconds=0.5)
    spared: list[subprocess.Popen[bytes]] = []
    async with running(settings=settings, kill=spared.append) as child:
        with pytest.raises(ChildStuck):
            await ask(child, "hang", timeout_seconds=0.05)
        with pytest.raises(ChildUnavailable, match="no fresh child in time"):
            await ask(child, "hello", timeout_seconds=0.05)
        spared[0].kill()
        assert spared[0].wait() != 0


async def test_ended_child_is_gone_and_not_replaced() -> None:
    """After `end` there is no process, and requests say so."""
    async with running() as child:
        pid = int(await ask(child, "pid"))
        await child.end()
        assert not is_alive(pid)
        with pytest.raises(ChildUnavailable, match="it was ended"):
            await ask(child, "hello")
        await child.end()
        assert (child.statistics().pid, child.statistics().died) == (None, 0)


async def test_end_while_pausing_ends_the_pause() -> None:
    """Nobody waits for a child that will not be."""
    settings = ChildSettings(backoff=BackoffSettings(first_seconds=1000, limit_seconds=1000))
    child = ChildProcess(ARGV, env=ENV, name="worker", settings=settings)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            await tasks.start(child.run)
            with pytest.raises(ChildDied):
                await ask(child, "exit 1")
            await child.end()


async def test_request_before_the_start_is_refused() -> None:
    """Nothing is waited for that was never begun."""
    child = ChildProcess(ARGV, env=ENV, name="worker")
    with pytest.raises(ChildUnavailable, match="not started"):
        await ask(child, "hello")


async def test_unkillable_child_is_left_behind_and_named() -> None:
    """A process that survives its kill is counted until it is gone; another one answers meanwhile."""
    spared: list[subprocess.Popen[bytes]] = []

    def spare_the_first(process: subprocess.Popen[bytes]) -> None:
        if not spared or process in spared:
            spared.append(process)
        else:
            process.kill()

    settings = ChildSettings(backoff=FAST.backoff, kill_seconds=0.05)
    async with running(settings=settings, kill=spare_the_first) as child:
        first = int(await ask(child, "pid"))
        with pytest.raises(ChildStuck):
            await ask(child, "hang", timeout_seconds=0.05)
        assert int(await ask(child, "pid")) != first
        assert child.statistics().left_behind == (first,)
        os.kill(first, signal.SIGKILL)
        await wait_until(lambda: not child.statistics().left_behind)


async def test_cancelled_owner_takes_the_child_with_it(log_lines: list[dict[str, Any]]) -> None:
    """When the owner's task group ends, so does the process, without a word of alarm."""
    async with running() as child:
        pid = int(await ask(child, "pid"))
    assert not is_alive(pid)
    assert "child_died" not in [line["event"] for line in log_lines]
    with pytest.raises(ChildUnavailable, match="it was ended"):
        await ask(child, "hello")


async def test_child_dies_with_a_parent_that_is_killed() -> None:
    """An agent that is killed outright leaves no child behind, even one that hangs."""
    script = (
        "import subprocess, sys, os, time\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stderr=subprocess.PIPE,"
        " env={**os.environ, 'NODEAGENT_PARENT_PID': str(os.getpid())})\n"
        "child.stderr.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", script, *ARGV]
    async with await anyio.open_process(argv, env={**os.environ, **ENV}, stdin=None, stderr=None) as parent:
        assert parent.stdout is not None
        pid = int(await parent.stdout.receive())
        parent.kill()
    await wait_until(lambda: not is_alive(pid))


async def test_a_child_that_goes_on_has_its_time_anew() -> None:
    """The time is that of one step: many steps together may take longer."""
    async with running() as child:
        answer = await child.request(b"walk 8 0.15 end", timeout_seconds=0.6, is_stepwise=True)
        assert answer == b"walked"
        assert child.statistics().stuck == 0


@pytest.mark.parametrize(("last", "error"), [("hang", ChildStuck), ("SIGSEGV", ChildDied)])
async def test_the_last_step_says_where_it_ended(last: str, error: type[ChildDied | ChildStuck]) -> None:
    """Whoever asked for several things at once learns which one of them ended the child."""
    async with running() as child:
        with pytest.raises(error) as caught:
            await child.request(f"walk 3 0.01 {last}".encode(), timeout_seconds=0.4, is_stepwise=True)
        assert isinstance(caught.value, ChildDied | ChildStuck)
        assert caught.value.step == "step 2"
        assert await ask(child, "hello") == "hello"
