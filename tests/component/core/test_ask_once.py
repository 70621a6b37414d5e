"""One question to a child that lives for its answer: it is gone afterwards, with all that it started."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.children.ask_once import ask_once
from nodeagent.core.children.spawn import spawn
from nodeagent.core.errors import ChildDied, ChildStuck, ChildUnavailable, FrameTooLarge
from tests.support.programs import child as child_module
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ARGV = (sys.executable, str(Path(child_module.__file__)))
ENV = {"PYTHONPATH": str(Path(child_module.__file__).parents[2]), "PYTHONUNBUFFERED": "1"}
LIMIT_BYTES = 1 << 20


async def ask(
    text: str,
    *,
    argv: tuple[str, ...] = ARGV,
    timeout_seconds: float = PATIENCE_SECONDS,
    limit_bytes: int = LIMIT_BYTES,
) -> str:
    answer = await ask_once(
        argv, text.encode(), env=ENV, name="reader", timeout_seconds=timeout_seconds, limit_bytes=limit_bytes
    )
    return answer.decode()


def list_children() -> set[int]:
    """Processes of this one, those among them that ended and were not reaped."""
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


async def test_a_child_lives_for_its_answer() -> None:
    before = list_children()
    pid = int(await ask("pid"))
    assert pid not in list_children()
    assert list_children() <= before


@pytest.mark.parametrize(
    ("order", "how"),
    [
        ("exit 3", "exited with status 3 before it answered"),
        ("die SIGKILL", "was killed by SIGKILL before it answered"),
        ("garbage", "sent what is no frame"),
        ("close", "was killed by SIGKILL before it answered"),
    ],
)
async def test_a_child_that_ends_without_an_answer_says_how(order: str, how: str) -> None:
    before = list_children()
    with pytest.raises(ChildDied, match=how):
        await ask(order)
    assert list_children() <= before


async def test_a_child_that_hangs_is_killed_at_the_deadline() -> None:
    before = list_children()
    with pytest.raises(ChildStuck, match=r"within 0\.3 s"):
        await ask("hang", timeout_seconds=0.3)
    assert list_children() <= before


async def test_an_answer_over_the_limit_is_none() -> None:
    """The answer is bounded, and so is the question, for which nothing is started then."""
    with pytest.raises(ChildDied, match="over the limit of 100"):
        await ask("descriptors " * 8, limit_bytes=100, argv=(sys.executable, "-c", TOO_LARGE))
    with pytest.raises(FrameTooLarge):
        await ask("x" * 101, limit_bytes=100)


TOO_LARGE = "import os, struct, time; os.write(1, struct.pack('!II', 101, 1)); time.sleep(60)"
STARTS_ANOTHER = """
import os, struct, subprocess, sys
os.read(0, 100)
other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])
answer = str(other.pid).encode()
os.write(1, struct.pack('!II', len(answer), 1) + answer)
other.wait()
"""


async def test_what_the_child_started_goes_with_it() -> None:
    """A program that it runs for its answer holds nothing open and stays nowhere."""
    pid = int(await ask("", argv=(sys.executable, "-c", STARTS_ANOTHER)))

    def is_gone() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        return state == "Z"  # its new parent takes its time

    await wait_until(is_gone)


async def test_whoever_stops_asking_leaves_no_child() -> None:
    """The caller is cancelled, as at the agent's stop: the child is reaped before the cancellation goes on."""
    before = list_children()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "hang")
        await wait_until(lambda: bool(list_children() - before))
        tasks.cancel_scope.cancel()
    assert list_children() <= before


async def test_a_program_that_is_not_there_is_said() -> None:
    with pytest.raises(ChildUnavailable, match="could not be started"):
        await ask("pid", argv=("/does/not/exist",))


async def test_words_of_the_child_go_to_the_log(log_lines: list[dict[str, Any]]) -> None:
    await ask("say something is odd")
    assert "something is odd" in [line.get("line") for line in log_lines]


async def test_one_that_survives_being_killed_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, log_lines: list[dict[str, Any]]
) -> None:
    """As a child does that sleeps in the kernel: the caller has its answer, and the log names the process."""
    monkeypatch.setattr("nodeagent.core.children.ask_once.KILL_SECONDS", 0.01)
    started: list[subprocess.Popen[bytes]] = []

    def spawn_and_note(*words: Any) -> subprocess.Popen[bytes]:
        started.append(spawn(*words))
        return started[-1]

    monkeypatch.setattr("nodeagent.core.children.ask_once.spawn", spawn_and_note)
    with monkeypatch.context() as within:
        within.setattr(os, "killpg", lambda _pid, _signal: None)
        with pytest.raises(ChildStuck):
            await ask("hang", timeout_seconds=0.3)
    (process,) = started
    assert ("child_left_behind", process.pid) in [(line["event"], line.get("pid")) for line in log_lines]
    process.kill()
    process.wait()
