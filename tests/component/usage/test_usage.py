"""The usage of parts of GPUs, from the bus to the bus."""

from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest

from nodeagent.components.usage.component import GATHER_SECONDS, NAMES_SECONDS, Usage
from nodeagent.components.usage.watchdog_task import Watchdog
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import FractionProcessEnded
from nodeagent.model.fractions import PodContainer
from nodeagent.model.journal import Binding
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import ProcessSample
from nodeagent.model.usage import FractionUsage
from tests.support.fractions import make_settings
from tests.support.samples import make_inventory, make_uuid
from tests.support.virtual_time import FakeClock
from tests.unit.components.usage.builders import bind, name, place, run, sample, tabulate

pytestmark = pytest.mark.virtual_time


class Host:
    """Processes and a container runtime."""

    def __init__(self) -> None:
        self.places: dict[int, ProcessPlace] = {}
        self.containers: tuple[PodContainer, ...] = ()
        self.problem = ""
        self.asked: list[float] = []
        self.looked_up: list[tuple[int, ...]] = []
        self.ended: list[tuple[int, str]] = []
        self.refusal, self.is_still_there = "", True

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        self.looked_up.append(tuple(pids))
        return {pid: self.places[pid] for pid in pids if pid in self.places}

    async def end(self, pid: int, pod_uid: str) -> bool:
        self.ended.append((pid, pod_uid))
        if self.refusal:
            raise JournalUnavailable("the process", self.refusal)
        return self.is_still_there

    async def list(self) -> tuple[PodContainer, ...]:
        self.asked.append(anyio.current_time())
        if self.problem:
            raise JournalUnavailable("the runtime", self.problem)
        return self.containers


class World:
    def __init__(self) -> None:
        self.clock, self.host = FakeClock(), Host()
        self.live = LiveSettings(make_settings())
        self.bus = Bus(self.clock)
        self.conditions = Conditions(self.bus, self.clock, CATALOGUE)

    def sample(self, *processes: ProcessSample) -> None:
        self.bus.publish_state(sample(*processes, seconds=self.clock.wall()), source="inventory")

    def tell(self, *bindings: Binding) -> None:
        self.bus.publish_state(tabulate(*bindings), source="allocations")

    def usage(self) -> FractionUsage:
        envelope = self.bus.latest(FractionUsage)
        assert envelope is not None
        return envelope.value

    def cores(self) -> dict[str, int | None]:
        return {one.container: one.parts[0].cores_used for one in self.usage().containers}


@asynccontextmanager
async def open_world(*bindings: Binding, is_simulated: bool = False) -> AsyncIterator[World]:
    world = World()
    world.bus.publish_state(make_inventory(), source="inventory")
    world.tell(*bindings)
    host = None if is_simulated else world.host
    component = Usage(
        world.bus,
        world.conditions,
        world.clock,
        places=host,
        list_containers=host.list if host is not None else None,
        watchdog=Watchdog(world.bus, world.live, host) if host is not None else None,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: component.run(task_status=task_status))
        yield world
        tasks.cancel_scope.cancel()


async def test_each_sample_is_told_anew() -> None:
    """With the sample's own time, by the places of its processes."""
    async with open_world(bind(1, "a")) as world:
        world.host.places = {10: place("a")}
        for cores in (10, 25):
            world.sample(run(10, cores))
            await anyio.sleep(1)
            assert world.cores() == {"main": cores}
        assert world.usage().time_seconds == world.clock.wall() - 1


async def test_nothing_is_told_twice_where_nobody_has_a_part() -> None:
    """A sample each second is no news then, and no process is looked up."""
    async with open_world() as world:
        world.sample(run(10))
        await anyio.sleep(1)
        first = world.bus.latest(FractionUsage)
        assert first is not None
        assert first.value == FractionUsage()
        world.sample(run(10, 20))
        await anyio.sleep(1)
        assert world.bus.latest(FractionUsage) is first
        assert not world.host.looked_up


async def test_an_old_sample_says_nothing_of_now() -> None:
    """Who has what is still told."""
    async with open_world(bind(1, "a")) as world:
        world.host.places = {10: place("a")}
        world.sample(run(10))
        await anyio.sleep(1)
        assert world.cores() == {"main": 10}
        await anyio.sleep(5)
        assert world.cores() == {"main": None}
        assert world.usage().time_seconds == 0
        world.sample(run(10, 40))
        await anyio.sleep(1)
        assert world.cores() == {"main": 40}


async def test_a_new_container_is_told_before_the_next_sample() -> None:
    """With what it is seen to use, which may be nothing yet."""
    async with open_world(bind(1, "a")) as world:
        world.sample()
        world.tell(bind(1, "a"), bind(2, "b", "other"))
        await anyio.sleep(2 * GATHER_SECONDS)
        assert world.cores() == {"main": 0, "other": 0}


async def test_the_runtime_is_asked_where_a_pod_does_not_say_enough() -> None:
    """And at most once in ten seconds, however often its answer says too little."""
    async with open_world(bind(1, "a", "left"), bind(2, "a", "right")) as world:
        world.host.places = {10: place("a", "l")}
        for _ in range(25):
            world.sample(run(10))
            await anyio.sleep(1)
        assert world.cores() == {"left": None, "right": None}
        assert [one.processes for one in world.usage().undivided] == [(10,)]
        times = world.host.asked
        assert len(times) == 3
        assert min(after - before for before, after in pairwise(times)) >= NAMES_SECONDS
        world.host.containers = (name("a", "left", "l"),)
        for _ in range(15):
            world.sample(run(10))
            await anyio.sleep(1)
        assert world.cores() == {"left": 10, "right": 0}
        assert len(times) == 4, "what is known is not asked for again"


async def test_a_runtime_that_does_not_answer_is_said_once(log_lines: list[MutableMapping[str, Any]]) -> None:
    """The pod is told as a whole meanwhile, and names come when they can be had."""
    async with open_world(bind(1, "a", "left"), bind(2, "a", "right")) as world:
        world.host.places, world.host.problem = {10: place("a", "l")}, "nobody there"
        for _ in range(25):
            world.sample(run(10))
            await anyio.sleep(1)
        assert len(world.host.asked) == 3
        assert [line["event"] for line in log_lines] == ["containers_not_named"]
        assert world.cores() == {"left": None, "right": None}
        world.host.problem, world.host.containers = "", (name("a", "right", "l"),)
        for _ in range(12):
            world.sample(run(10))
            await anyio.sleep(1)
        assert world.cores() == {"left": 0, "right": 10}


async def test_processes_that_nobody_sees_are_a_condition() -> None:
    """As long as several have parts of the GPU; one who has it alone is told all the same."""
    async with open_world(bind(1, "a"), bind(2, "b", "other")) as world:
        world.sample(run(10), run(11))
        await anyio.sleep(1)
        (said,) = world.conditions.all_set()
        assert (said.code, said.key) == ("part-use-unseen", make_uuid(0))
        assert "none of its 2 processes" in said.detail
        world.host.places = {10: place("a")}
        world.sample(run(10))
        await anyio.sleep(1)
        assert not world.conditions.all_set()
        world.host.places = {}
        world.sample(run(10))
        await anyio.sleep(1)
        assert world.conditions.all_set()
        world.tell()
        await anyio.sleep(1)
        assert not world.conditions.all_set()


async def test_made_up_processes_are_looked_up_nowhere() -> None:
    """They are theirs who have the GPU alone."""
    async with open_world(bind(1, "a"), is_simulated=True) as world:
        world.sample(run(10))
        await anyio.sleep(1)
        assert world.cores() == {"main": 10}
        world.tell(bind(1, "a"), bind(2, "b", "other"))
        await anyio.sleep(1)
        assert world.cores() == {"main": None, "other": None}
        assert not world.conditions.all_set(), "nothing that a person could mend"
        assert (world.host.looked_up, world.host.asked) == ([], [])


async def test_who_uses_more_memory_than_its_part_is_a_condition() -> None:
    """Until it uses less, or has no part any more."""
    async with open_world(bind(1, "a", gib=1)) as world:
        world.host.places = {10: place("a")}
        world.sample(run(10, gib=2))
        await anyio.sleep(1)
        (said,) = world.conditions.all_set()
        assert said.code == "part-over-memory"
        world.sample(run(10, gib=1))
        await anyio.sleep(1)
        assert not world.conditions.all_set()
        world.sample(run(10, gib=2))
        await anyio.sleep(1)
        world.tell()
        await anyio.sleep(1)
        assert not world.conditions.all_set()


async def test_a_container_that_keeps_more_than_its_part_loses_its_largest_process() -> None:
    """Where that is configured, in the second measurement that finds it so; told only when it was done."""
    async with open_world(bind(1, "a", gib=2)) as world:
        world.host.places = {10: place("a"), 11: place("a")}

        async def see() -> list[FractionProcessEnded]:
            world.sample(run(10, gib=1), run(11, gib=2))
            await anyio.sleep(1)
            facts = (envelope.value for envelope in world.bus.history())
            return [fact for fact in facts if isinstance(fact, FractionProcessEnded)]

        await see()
        await see()
        assert world.host.ended == []
        world.live.replace(make_settings(kill_over_memory=True))
        assert await see() == []
        world.tell(bind(1, "a", gib=2), bind(2, "b"))
        await anyio.sleep(0.1)
        assert world.host.ended == [], "the same measurement once more is none"
        (fact,) = await see()
        assert (fact.pid, fact.container, fact.memory_bytes) == (11, "main", 2 << 30)
        assert world.host.ended == [(11, "u-a")]
        world.host.is_still_there = False
        assert len(await see()) == 1
        world.host.refusal = "not permitted"
        assert len(await see()) == 1
        assert len(world.host.ended) == 3
