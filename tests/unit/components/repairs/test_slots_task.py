"""Slots taken by many agents of one store: never too many act, nobody starves, slots come back."""

from heapq import heapify, heappop, heappush
from random import Random

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.slots_task import RepairSlots
from nodeagent.edge.kube.errors import ApiUnreachable
from nodeagent.model.repairs import Rung
from nodeagent.model.slots import CLUSTER, Domain
from nodeagent.rules.repair.breaker import Breaker, render_breaker
from nodeagent.rules.repair.slots import HELD_SECONDS, find_retry_seconds
from tests.fakes.repair_slots import Store

RACK, ALL = Domain(key="rack", value="r1", slots=1), Domain(key=CLUSTER, value="", slots=2)
BOTH = (RACK, ALL)
REPAIR_SECONDS = 120.0
WRITES_OF_TWO, WRITES_OF_THOUSAND = 6.0, 10.0
"""For a repair with two domains, with what is taken in the one and given back for want of the other."""


class FakeClock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def make_slots(store: Store, node: str = "a", clock: FakeClock | None = None, boot: str = "one") -> RepairSlots:
    return RepairSlots(store, node, lambda: boot, clock or FakeClock())


async def test_a_repair_takes_a_slot_of_each_domain_and_gives_all_back() -> None:
    """Three writes for a domain at most: the take, the result, the way back; a first slot takes the result along."""
    store = Store((RACK, ALL))
    slots = make_slots(store)
    assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.RESET]) == ""
    assert store.holders(RACK) == ["a/one/7/0"]
    assert sorted(store.holders(ALL)) == ["", "a/one/7/0"]
    await slots.give_back(BOTH, "7", is_proven=True)
    assert (store.holders(RACK), store.holders(ALL)) == ([""], ["", ""])
    assert store.breaker(RACK).results == store.breaker(ALL).results == (True,)
    assert store.writes <= 3 + 2


async def test_what_is_lacking_is_said_and_the_rest_given_back() -> None:
    store = Store((RACK, ALL))
    for number in range(2):
        store.hold(ALL, number, f"node-{number}/x/1/0")
    refusal = await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.RESET])
    assert refusal == "no slot of cluster is free: node-0, seen for 0 min; node-1, seen for 0 min"
    assert store.holders(RACK) == [""]


async def test_a_session_without_slots_looks_no_further_than_the_first_domain_that_refuses() -> None:
    """Once an answer has told that the session has none elsewhere."""
    store = Store(BOTH)
    store.hold(RACK, 0, "b/x/1/0")
    slots, reads = make_slots(store), list[int]()
    for _ in range(2):
        store.reads = 0
        assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.RESET]) == "no slot of rack r1 is free: b, seen for 0 min"
        reads.append(store.reads)
    assert (reads, store.writes) == ([3, 1], 0)


async def test_without_leases_or_api_server_there_is_no_repair() -> None:
    store = Store((RACK,))
    assert (await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.RESET])).startswith(
        "a Lease of cluster is not there: "
    )
    assert store.holders(RACK) == [""]
    store.is_away = True
    with pytest.raises(ApiUnreachable):
        await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.RESET])
    assert not await make_slots(store).give_back(BOTH, "7")


async def test_a_node_finds_its_slots_after_its_reboot() -> None:
    store = Store((RACK, ALL))
    assert await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.REBOOT]) == ""
    again = make_slots(store, boot="two")
    assert await again.take(BOTH, "7", HELD_SECONDS[Rung.REBOOT]) == ""
    assert store.holders(RACK) == ["a/two/7/0"]
    await make_slots(store, boot="two").give_back(BOTH, "7")
    assert (store.holders(RACK), sorted(store.holders(ALL)), store.breaker(RACK)) == ([""], ["", ""], Breaker())


async def test_who_is_overtaken_each_time_has_no_slot() -> None:
    """And whoever is overtaken while giving back keeps the slot until its time is over."""
    store = Store((RACK, ALL))
    slots = make_slots(store)
    assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.RESET]) == ""
    name = RACK.name_slot(0)

    def overtake() -> None:
        store.writes += 1
        store.slots[name] = replace(store.slots[name], version=f"other {store.writes}")

    store.overtake = overtake
    assert not await slots.give_back(BOTH, "7")
    assert store.holders(RACK) == ["a/one/7/0"]
    assert await slots.give_back((Domain(key="rack", value="gone", slots=1),), "7")
    store.overtake = None
    assert await slots.give_back(BOTH, "7")
    store.overtake = overtake
    assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.RESET]) == "other nodes were faster with the slots of rack r1"


async def test_a_session_that_asks_again_writes_only_to_renew_its_slots() -> None:
    """And for a longer time, as a reboot needs; a refusal takes back what the session had."""
    store, clock = Store(BOTH), FakeClock()
    slots = make_slots(store, clock=clock)
    written = list[int]()
    for clock.now, rung in ((0.0, Rung.RESET), (60.0, Rung.RESET), (200.0, Rung.REBOOT), (400.0, Rung.REBOOT)):
        assert await slots.take(BOTH, "7", HELD_SECONDS[rung]) == ""
        written.append(store.writes)
    assert written == [2, 2, 4, 4]
    clock.now = 720.0
    assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.REBOOT]) == ""
    assert store.writes == 6
    store.suspend(ALL)
    await slots.renew(BOTH, "7", HELD_SECONDS[Rung.REBOOT])
    assert store.holders(RACK) == ["a/one/7/0"]
    assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.REBOOT]) == "a person has suspended repairs in cluster"
    assert (store.holders(RACK), store.holders(ALL), slots.allowed[ALL]) == ([""], ["", ""], 0)
    await slots.renew(BOTH, "7", HELD_SECONDS[Rung.REBOOT])
    assert store.holders(RACK) == [""]


async def test_an_answer_that_does_not_come_leaves_what_was_taken_before() -> None:
    """What the failed call itself has taken goes back."""
    store = Store(BOTH)
    assert await make_slots(store).take((RACK,), "7", HELD_SECONDS[Rung.RESET]) == ""

    def fail() -> None:
        raise ApiUnreachable("the API server", "write", "no route")

    store.overtake = fail
    with pytest.raises(ApiUnreachable):
        await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.RESET])
    assert (store.holders(RACK), store.holders(ALL)) == (["a/one/7/0"], ["", ""])


async def test_who_is_overtaken_by_the_last_free_slot_is_told_who_has_it() -> None:
    """And whatever was taken before goes back."""
    store = Store(BOTH)

    def overtake() -> None:
        if store.holders(RACK) != [""]:
            store.overtake = None
            store.hold(ALL, 0, "b/x/1/0")
            store.hold(ALL, 1, "c/x/1/0")

    store.overtake = overtake
    refusal = await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.RESET])
    assert refusal == "no slot of cluster is free: b, seen for 0 min; c, seen for 0 min"
    assert store.holders(RACK) == [""]


async def test_a_result_that_a_stopped_domain_does_not_hear_costs_no_write() -> None:
    store = Store(BOTH)
    store.hold(ALL, 0, "b/x/1/0")
    slots = make_slots(store)
    assert await slots.take((ALL,), "7", HELD_SECONDS[Rung.RESET]) == ""
    store.slots[ALL.name_slot(0)] = replace(
        store.slots[ALL.name_slot(0)], breaker=render_breaker(Breaker(phase=1, width=0))
    )
    await slots.give_back((ALL,), "7", is_proven=True)
    assert (store.breaker(ALL), store.writes) == (Breaker(phase=1, width=0), 2)


async def test_a_cancelled_take_leaves_nothing_behind() -> None:
    store = Store((RACK, ALL))
    with anyio.CancelScope() as scope:
        store.overtake = scope.cancel
        await make_slots(store).take(BOTH, "7", HELD_SECONDS[Rung.RESET])
    assert (store.holders(RACK), store.holders(ALL)) == ([""], ["", ""])


async def test_a_probe_in_another_slot_than_the_first_widens_the_domain() -> None:
    store = Store((RACK, ALL))
    half = Breaker(phase=4, width=2)
    name = ALL.name_slot(0)
    store.slots[name] = replace(store.slots[name], breaker=render_breaker(half), holder="b/x/1/4", seconds=600.0)
    slots = make_slots(store)
    assert await slots.take(BOTH, "7", HELD_SECONDS[Rung.RESET]) == ""
    await slots.give_back(BOTH, "7", is_proven=True)
    assert (store.breaker(ALL), store.holders(ALL)) == (Breaker(phase=5), ["b/x/1/4", ""])


class Agent:
    """A faulty node: asks until it is repaired, or vanishes with its slots."""

    def __init__(self, index: int, world: "World") -> None:
        random = world.random
        self.offset, self.world, self.due = random.uniform(-3600, 3600), world, random.uniform(0, 60)
        rack = Domain(key="rack", value=str(index % world.racks), slots=1) if world.racks else None
        self.domains = (world.cluster,) if rack is None else (rack, world.cluster)
        self.slots = RepairSlots(world.store, f"node-{index}", lambda: "one", self)
        self.acts_until, self.is_done = 0.0, False
        self.is_vanishing = random.random() < 0.05

    def monotonic(self) -> float:
        return self.world.now + self.offset

    def wall(self) -> float:
        return self.monotonic()

    async def step(self) -> None:
        world = self.world
        if self.acts_until:
            self.acts_until, self.is_done = 0.0, True
            if not self.is_vanishing:
                await self.slots.give_back(self.domains, "1", is_proven=world.random.random() < 0.9)
            return
        try:
            refusal = await self.slots.take(self.domains, "1", HELD_SECONDS[Rung.RESET])
        except ApiUnreachable as error:
            refusal = str(error)
        if refusal:
            self.due = world.now + find_retry_seconds(is_grave=False, age_seconds=world.now, draw=world.random.random())
            return
        lasts = HELD_SECONDS[Rung.RESET] if self.is_vanishing else REPAIR_SECONDS
        self.due = self.acts_until = world.now + lasts


class World:
    """Nodes that fail together, and ask within the same second at the same time."""

    def __init__(self, nodes: int, racks: int, slots: int, seed: int) -> None:
        self.random, self.racks, self.now = Random(seed), racks, 0.0
        self.cluster = Domain(key=CLUSTER, value="", slots=slots)
        domains = (*(Domain(key="rack", value=str(rack), slots=1) for rack in range(racks)), self.cluster)
        self.store = Store(domains, self.random, rate=0.3)
        self.agents = [Agent(index, self) for index in range(nodes)]
        self.acting = set[Agent]()
        self.due = [(agent.due, index) for index, agent in enumerate(self.agents)]
        heapify(self.due)

    async def step(self) -> None:
        self.now = self.due[0][0]
        batch = []
        while self.due and self.due[0][0] <= self.now + 1.0:
            batch.append(heappop(self.due)[1])
        async with anyio.create_task_group() as tasks:
            for index in batch:
                tasks.start_soon(self.agents[index].step)
        for agent in map(self.agents.__getitem__, batch):
            (self.acting.add if agent.acts_until else self.acting.discard)(agent)
        for index in batch:
            if not self.agents[index].is_done:
                heappush(self.due, (self.agents[index].due, index))

    def check(self) -> None:
        """Never more act than there are slots, in the cluster and in each rack."""
        acting = [agent for agent in self.acting if agent.acts_until > self.now]
        assert len(acting) <= self.cluster.slots
        narrow = [agent.domains[0] for agent in acting] if self.racks else []
        assert len(narrow) == len(set(narrow))

    async def run(self, hours: float) -> float:
        """Returns the writes for each repair."""
        while self.due:
            await self.step()
            self.check()
            assert self.now < hours * 3600, f"{len(self.due)} nodes starve"
        return self.store.writes / len(self.agents)


@pytest.mark.long
async def test_a_hundred_nodes_that_fail_together_are_repaired_in_turn() -> None:
    """Clocks an hour apart, three of ten writes refused, one of twenty holders gone for good."""
    assert await World(100, racks=10, slots=4, seed=3).run(hours=12.0) < WRITES_OF_TWO


async def test_a_repair_costs_three_writes_of_a_domain_at_most() -> None:
    """On average, where answers are lost and others faster; a refusal costs none."""
    assert await World(20, racks=0, slots=2, seed=4).run(hours=12.0) <= 3.0


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_a_thousand_nodes_that_fail_together_are_repaired_in_turn() -> None:
    """More of them lose a race for the cluster's slots, with a slot of their rack to be given back."""
    assert await World(1000, racks=50, slots=20, seed=5).run(hours=24.0) < WRITES_OF_THOUSAND
