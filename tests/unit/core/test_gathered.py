"""Bursts of changes become one."""

import anyio
import pytest

from nodeagent.core.channels.gathered import Gathered, decide_pause

pytestmark = pytest.mark.virtual_time


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
