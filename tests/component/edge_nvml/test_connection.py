"""The pipe to the worker, with workers that are not ours."""

import sys
from pathlib import Path

import anyio
import pytest

import nodeagent
from nodeagent.edge.nvml.agent import connection
from nodeagent.edge.nvml.agent.connection import Connection
from nodeagent.edge.nvml.agent.protocol import COUNTED, Request
from nodeagent.model.errors import DriverUnavailable

ANSWER = """
import sys
sys.path.append(sys.argv[1])
from nodeagent.core.children.frames import read_frames, write_frame
for number, _ in read_frames(0):
    write_frame(1, number, sys.argv[2].encode())
"""


def stand_in(monkeypatch: pytest.MonkeyPatch, *command: str, open_seconds: float = 5.0) -> Connection:
    """A connection to another program than the worker."""
    monkeypatch.setattr(connection, "render_command", lambda _root, _library: list(command))
    return Connection("", "", open_seconds, {})


@pytest.mark.parametrize("answer", ["{}garbage", '{"value":"many"}', '{"value":{"code":"none"}}'])
async def test_an_answer_in_another_form_is_an_error(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """What cannot be understood is said to be that, never half believed."""
    root = str(Path(nodeagent.__file__).parents[1])
    link = stand_in(monkeypatch, sys.executable, "-I", "-S", "-c", ANSWER, root, answer)
    async with anyio.create_task_group() as tasks:
        await link.start(tasks)
        with pytest.raises(DriverUnavailable, match="cannot understand the NVML worker: initialising NVML"):
            await link.ask(Request(do="count"), COUNTED, 5.0, "counting")
        tasks.cancel_scope.cancel()


async def test_a_worker_that_never_opens_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told twice to open first, the agent gives up instead of asking for ever."""
    root = str(Path(nodeagent.__file__).parents[1])
    link = stand_in(monkeypatch, sys.executable, "-I", "-S", "-c", ANSWER, root, '{"closed":true}')
    async with anyio.create_task_group() as tasks:
        await link.start(tasks)
        with pytest.raises(DriverUnavailable, match="replaced faster than it can be asked"):
            await link.ask(Request(do="count"), COUNTED, 5.0, "counting")
        tasks.cancel_scope.cancel()


async def test_a_worker_that_cannot_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interpreter, no GPUs, but an error with a reason."""
    link = stand_in(monkeypatch, "/nowhere/python", open_seconds=0.2)
    async with anyio.create_task_group() as tasks:
        await link.start(tasks)
        with pytest.raises(DriverUnavailable, match="cannot ask the NVML worker"):
            await link.ask(Request(do="count"), COUNTED, 0.2, "counting")
        tasks.cancel_scope.cancel()


async def test_a_connection_that_was_not_started_says_so() -> None:
    """A mistake of ours has words too."""
    link = Connection("", "", 5.0, {})
    with pytest.raises(DriverUnavailable, match="it is not running"):
        await link.ask(Request(do="count"), COUNTED, 1.0, "counting")


async def test_renewing_what_is_released_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Released means that nobody starts a worker behind the operator's back."""
    link = stand_in(monkeypatch, sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()")
    async with anyio.create_task_group() as tasks:
        await link.start(tasks)
        await link.release("upgrade")
        await link.renew()
        assert link.statistics() is None
        await link.resume()
        assert link.statistics() is not None
        tasks.cancel_scope.cancel()
