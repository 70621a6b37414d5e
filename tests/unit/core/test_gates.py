import anyio
import pytest

from nodeagent.core.errors import GateUnknown
from nodeagent.core.life.gates import Gates
from nodeagent.core.values import GateState
from tests.support.virtual_time import START_WALL, FakeClock

pytestmark = pytest.mark.virtual_time


async def test_waiter_passes_only_when_all_its_gates_are_open_together(clock: FakeClock) -> None:
    """One gate that closes again before the other opens holds the waiter back."""
    gates = Gates(["a", "b"], clock=clock)
    passed: list[float] = []

    async def wait() -> None:
        await gates.wait_open("a", "b")
        passed.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        for opened, closed in (("a", "a"), ("b", None), ("a", None)):
            await anyio.sleep(1)
            gates.open(opened)
            if closed:
                gates.close(closed)
    assert passed == [3.0]


async def test_open_gates_let_pass_without_waiting() -> None:
    """Waiting for gates that are open returns at once; waiting for none does too."""
    gates = Gates(["a"])
    gates.open("a")
    with anyio.fail_after(0):
        await gates.wait_open("a")
        await gates.wait_open()


async def test_states_say_since_when_and_by_whom(clock: FakeClock) -> None:
    """A repeated opening keeps the first opener and time."""
    gates = Gates(["a", "b"], clock=clock)
    await anyio.sleep(5)
    gates.open("a", by="driver")
    await anyio.sleep(5)
    gates.open("a", by="other")
    assert gates.states() == (
        GateState("a", is_open=True, since=START_WALL + 5, by="driver"),
        GateState("b", is_open=False, since=START_WALL, by=""),
    )
    assert gates.closed_among("a", "b") == ("b",)


async def test_unknown_gate_is_refused_everywhere() -> None:
    """A misspelt name fails at once and names the gates there are."""
    gates = Gates(["a"])
    for attempt in (gates.open, gates.close, gates.is_open, gates.closed_among):
        with pytest.raises(GateUnknown, match="declared gates: a"):
            attempt("A")
    with pytest.raises(GateUnknown, match="'x'"):
        await gates.wait_open("a", "x")


async def test_any_change_wakes_who_waits_for_change() -> None:
    """Opening and closing both end `wait_changed`."""
    gates = Gates(["a"])
    seen: list[bool] = []

    async def follow() -> None:
        for _ in range(2):
            await gates.wait_changed()
            seen.append(gates.is_open("a"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await anyio.sleep(1)
        gates.open("a")
        await anyio.sleep(1)
        gates.close("a")
    assert seen == [True, False]
