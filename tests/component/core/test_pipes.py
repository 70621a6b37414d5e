import os
from collections.abc import Iterator

import anyio
import pytest

from nodeagent.core.children.pipes import read_lines, read_some, write_whole


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    yield reading, writing
    for descriptor in (reading, writing):
        os.close(descriptor)


async def test_more_than_a_pipe_holds_arrives_whole(pipe: tuple[int, int]) -> None:
    """The writer waits for room as often as it takes."""
    reading, writing = pipe
    received = b""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_whole, writing, b"x" * 300_000)
        while len(received) < 300_000:
            received += await read_some(reading)
    assert received == b"x" * 300_000


async def test_readiness_that_was_for_a_moment_is_waited_for_again(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor may be ready and then not; neither side takes that for an error."""
    reading, writing = pipe
    false_alarms = [reading, writing]
    real = {"wait_readable": anyio.wait_readable, "wait_writable": anyio.wait_writable}

    async def wait_readable(descriptor: int) -> None:
        if descriptor in false_alarms:
            false_alarms.remove(descriptor)
        else:
            await real["wait_readable"](descriptor)

    async def wait_writable(descriptor: int) -> None:
        if descriptor in false_alarms:
            false_alarms.remove(descriptor)
        else:
            await real["wait_writable"](descriptor)

    monkeypatch.setattr(anyio, "wait_readable", wait_readable)
    monkeypatch.setattr(anyio, "wait_writable", wait_writable)
    filled = _fill(writing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_whole, writing, b"last")
        await anyio.wait_all_tasks_blocked()
        assert false_alarms == [reading]
        os.read(reading, filled)
    assert await read_some(reading) == b"last"
    false_alarms.append(reading)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_some, reading)
        await anyio.wait_all_tasks_blocked()
        assert false_alarms == []
        os.write(writing, b"now")


async def test_lines_come_whole_and_endless_ones_are_cut() -> None:
    """Pieces are joined to lines, blank ones dropped, the last needs no end, and none grows without limit."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    lines: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read_lines, reading, lines.append)
        for piece in (b"on", b"e\ntwo\n\n  \nth", b"ree\xff", b"\n" + b"y" * 5000, b"\nlast"):
            os.write(writing, piece)
            await anyio.sleep(0.005)
        os.close(writing)
    os.close(reading)
    assert lines == ["one", "two", "three\ufffd", "y" * 4096, "last"]


def _fill(descriptor: int) -> int:
    written = 0
    try:
        while True:
            written += os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        return written
