"""How a daemon is looked at: asked seldom, at once where something has changed, and repeated only where it has news."""

from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.components.mps.daemon_task import ANSWER_SECONDS
from nodeagent.model.errors import MpsRefused
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsPhase, MpsPlace, MpsState
from nodeagent.rules.mps.log import LOG_LINES_MAX, TOLD_LETTERS
from nodeagent_sim.mps import SimulatedMps
from tests.component.mps.harness import World, share
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

HEAD = "[2026-11-26 23:05:26.973 Control  8204] "
POLL_INTERVAL_SECONDS = 15.0
LOOK = ["get_server_list", "get_default_device_pinned_mem_limit 0", "get_default_active_thread_percentage"]


class LoggingMps(SimulatedMps):
    """Writes what NVIDIA's own daemon writes to each question, and counts questions."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.lines: list[str] = []
        self.processes: frozenset[int] = frozenset()

    async def ask(self, place: MpsPlace, commands: Sequence[str], timeout_seconds: float = 0.0) -> tuple[str, ...]:
        answer = await super().ask(place, commands, timeout_seconds)
        self.asked += commands
        texts = ["Accepting connection...", "NEW UI", *(f"Cmd:{one}" for one in commands), *answer, "UI closed"]
        self.lines += [HEAD + text for text in texts]
        servers = self.processes if commands[0] == "get_server_list" else ()
        return (*map(str, servers), *answer)

    async def read_log(self, place: MpsPlace) -> tuple[str, ...]:
        lines, self.lines = self.lines, []
        return tuple(lines)

    async def list_processes(self, pid: int, clients: Sequence[int]) -> frozenset[int]:
        return self.processes


@pytest.fixture
def host() -> LoggingMps:
    return LoggingMps()


@pytest.fixture
def world(clock: FakeClock, tmp_path: Path, host: LoggingMps) -> World:
    world = World(clock, tmp_path, sharing=share(4), look_seconds=POLL_INTERVAL_SECONDS)
    world.host = host
    return world


async def test_a_daemon_without_news_is_asked_seldom(
    world: World, host: LoggingMps, log_lines: list[MutableMapping[str, Any]]
) -> None:
    """A sign of life in two minutes, not a question at each look; and nothing of it is repeated."""
    async with world.running():
        await world.until_phase(MpsPhase.READY)
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        host.asked.clear()
        await anyio.sleep(3600)
        assert (
            3600 / (ANSWER_SECONDS + POLL_INTERVAL_SECONDS) - 1
            <= host.asked.count("get_server_list")
            <= 3600 / ANSWER_SECONDS
        )
        assert not [line for line in log_lines if line["event"] == "mps_said"]
    world.close()


@pytest.mark.parametrize(
    "line", ["Starting new server 12 for user 0", "NEW CLIENT 9 from user 0: Server already exists"]
)
async def test_news_are_repeated_once_and_asked_after(
    world: World, host: LoggingMps, log_lines: list[MutableMapping[str, Any]], line: str
) -> None:
    """At the next look."""
    async with world.running():
        await world.until_phase(MpsPhase.READY)
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        host.asked.clear()
        host.lines.append(HEAD + line)
        await anyio.sleep(2 * POLL_INTERVAL_SECONDS)
        assert host.asked == LOOK
        assert [HEAD + line] == [said["line"] for said in log_lines if said["event"] == "mps_said"]
    world.close()


async def test_a_server_that_came_without_a_word_is_asked_for(world: World, host: LoggingMps) -> None:
    """The kernel knows of it; once it is known, nobody asks again."""
    async with world.running():
        await world.until_phase(MpsPhase.READY)
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        host.asked.clear()
        host.processes = frozenset({77})
        await anyio.sleep(3 * POLL_INTERVAL_SECONDS)
        assert host.asked == [*LOOK, "get_client_list 77"]
        assert [one.pid for one in world.state.daemons[0].servers] == [77]
    world.close()


async def test_limits_that_somebody_else_has_set_are_set_back(world: World, host: LoggingMps) -> None:
    """A daemon of driver 535 takes them from whoever reaches its pipes, containers included."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        place = MpsPlace(root=world.root, name=daemon.name, has_own_memory=True)
        await host.ask(place, ("set_default_active_thread_percentage 99",))
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert await host.ask(place, ("get_default_active_thread_percentage",)) == ("25.0",)
    world.close()


async def test_limits_that_are_others_without_a_word_are_set_back(world: World, host: LoggingMps) -> None:
    """The line may have been cut off with the log: they are looked at with every sign of life."""
    async with world.running():
        (daemon,) = await world.until_phase(MpsPhase.READY)
        place = MpsPlace(root=world.root, name=daemon.name, has_own_memory=True)
        await host.ask(place, ("set_default_active_thread_percentage 99",))
        host.lines.clear()
        await anyio.sleep(ANSWER_SECONDS + POLL_INTERVAL_SECONDS)
        assert await host.ask(place, ("get_default_active_thread_percentage",)) == ("25.0",)
        assert world.state.daemons[0].phase is MpsPhase.READY
    world.close()


async def test_one_that_fails_again_and_again_is_down_all_the_time(clock: FakeClock, tmp_path: Path) -> None:
    """Its condition does not come and go with each try."""

    class Refusing(SimulatedMps):
        tries = 0

        async def start(self, place: MpsPlace, gpus: Sequence[GpuUuid], *, multi_user: bool = False) -> int:
            self.tries += 1
            if self.tries < 6:
                raise MpsRefused("it did not come up")
            return await super().start(place, gpus, multi_user=multi_user)

    world = World(clock, tmp_path, sharing=share(4))
    world.host = host = Refusing()
    phases: list[MpsPhase] = []
    async with world.running():
        with world.bus.watch(MpsState, client="test") as states:
            while not phases or phases[-1] is not MpsPhase.READY:
                await anext(states)
                phases += [one.phase for one in world.state.daemons]
        assert host.tries == 6
        failed = phases.index(MpsPhase.BROKEN)
        assert set(phases[failed:-1]) == {MpsPhase.BROKEN}
    world.close()


async def test_a_tenant_who_floods_a_daemon_does_not_flood_the_agents_log(
    world: World, host: LoggingMps, log_lines: list[MutableMapping[str, Any]]
) -> None:
    """Of each look some lines are repeated, none of them in all its length, and the others are counted."""
    async with world.running():
        await world.until_phase(MpsPhase.READY)
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        log_lines.clear()
        for _ in range(3):
            host.lines += [f"{HEAD}Cmd:set_active_thread_percentage {'9' * 4000}"] * 1000
            await anyio.sleep(POLL_INTERVAL_SECONDS)
    said = [line["line"] for line in log_lines if line["event"] == "mps_said"]
    assert len(said) == 3 * LOG_LINES_MAX
    assert max(map(len, said)) == TOLD_LETTERS
    assert [line["lines"] for line in log_lines if line["event"] == "mps_said_more"] == [1000 - LOG_LINES_MAX] * 3
