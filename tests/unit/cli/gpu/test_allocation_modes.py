"""Waiting for a door, with an agent that answers what the test says."""

from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers import orders
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu import allocation_modes
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder
from nodeagent.model.orders import AllocationModeCommand
from tests.support.gpus import gpu_uuid
from tests.support.programs.command_line import run_here
from tests.support.samples import make_address

OPEN = GpuAllocationMode(
    gpu=gpu_uuid(3),
    index=3,
    address=make_address(3),
    door=AllocationMode.WHOLE,
    wanted=AllocationMode.WHOLE,
    reason="set by a person",
    is_open=True,
)
FIRST, SECOND = (ModeHolder(door=AllocationMode.WHOLE, name=f"allocation {number}") for number in (1, 2))


def waiting(*holders: ModeHolder) -> GpuAllocationMode:
    return replace(OPEN, wanted=AllocationMode.NONE, is_open=False, waits_for=holders)


CLOSED = replace(OPEN, door=AllocationMode.NONE, wanted=AllocationMode.NONE, is_open=False)


class Agent:
    """Tells one list of doors after the other, the last again and again."""

    simulated = ""

    def __init__(self, lists: Iterator[tuple[GpuAllocationMode, ...]]) -> None:
        self._lists, self._newest = lists, tuple[GpuAllocationMode, ...]()
        self.told: list[AllocationModeCommand] = []

    def give(self, _order: object, command: AllocationModeCommand) -> str:
        self.told.append(command)
        return self.read("", None)[0].describe()

    def read(self, _path: str, _kind: object) -> tuple[GpuAllocationMode, ...]:
        self._newest = next(self._lists, self._newest)
        return self._newest


def choose(
    monkeypatch: pytest.MonkeyPatch, lists: Sequence[tuple[GpuAllocationMode, ...]], *words: str
) -> tuple[Agent, int, list[str], str]:
    agent = Agent(iter(lists))
    monkeypatch.setattr(allocation_modes, "find_agent", lambda *_, **__: agent)
    monkeypatch.setattr(orders, "find_agent", lambda *_, **__: agent)
    monkeypatch.setattr(allocation_modes, "POLL_INTERVAL_SECONDS", 0.0)
    code, out, err = run_here("gpu", "set-door", "3", "none", *words)
    return agent, code, out.splitlines(), err


def test_without_waiting_it_says_how_the_door_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """And has told the agent which GPU and which door."""
    agent, code, lines, _ = choose(monkeypatch, [(waiting(FIRST),)])
    assert (code, lines) == (0, [waiting(FIRST).describe()])
    assert [(one.gpu, one.door) for one in agent.told] == [("3", "none")]


def test_waiting_tells_each_change_once_and_ends_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [(waiting(FIRST, SECOND),), (waiting(FIRST, SECOND),), (waiting(SECOND),), (CLOSED,)]
    _, code, lines, _ = choose(monkeypatch, lists, "--wait")
    assert (code, lines) == (0, [waiting(FIRST, SECOND).describe(), waiting(SECOND).describe(), CLOSED.describe()])


def test_waiting_ends_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a code of its own; the choice stands."""
    _, code, _, err = choose(monkeypatch, [(waiting(FIRST),)], "--wait", "1ms")
    assert (code, "still waiting after 0.001 s; the door changes by itself" in err) == (ExitCode.UNWELL, True)


def test_a_gpu_that_goes_meanwhile_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its door is remembered, and that is said."""
    _, code, _, err = choose(monkeypatch, [(waiting(FIRST),), (replace(CLOSED, index=2, gpu=gpu_uuid(2)),)], "--wait")
    assert (code, "GPU 3 is not there any more; its door is remembered" in err) == (ExitCode.UNWELL, True)
