"""Upgrades of several nodes at once: a slot before the first GPU is closed, until the end, and back with the result."""

import anyio
import pytest

from nodeagent.cli.node.driver import describe
from nodeagent.components.repairs.drain_task import UPGRADE_DRAINING
from nodeagent.components.repairs.holding_task import UpgradeSlots
from nodeagent.components.upgrades.component import DUE, UNDER_WAY
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.orders import ABORT_UPGRADE, PAUSE_UPGRADE, RESUME_UPGRADE
from nodeagent.model.repairs import ToolAnswer
from nodeagent.model.slots import CLUSTER, Domain
from nodeagent.model.upgrades import UpgradeEnding, UpgradePhase, UpgradeState
from tests.component.upgrades.world import BY_COMMAND, HELD, LONG, Host, Memory, World
from tests.fakes.repair_slots import Store
from tests.support.repairs import NEW, make_upgrade
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

ALL = Domain(key=CLUSTER, value="", slots=1)
MINE, OTHER = "a/one/upgrade-1/0", "node-b/x/1/0"
RETRY_SECONDS = 95.0
"""After it a refused upgrade has asked again."""


def make_world(clock: FakeClock, store: Store, host: Host | None = None, memory: Memory | None = None) -> World:
    world = World(clock, host or Host(), BY_COMMAND, memory, store=store)
    world.bus.publish_state(ClusterNode(name="a", uid="u", labels={}), source="test")
    return world


async def test_three_nodes_with_one_slot_are_upgraded_one_after_the_other(clock: FakeClock) -> None:
    """Never two at once, though the agent of the first is killed in the middle and comes back after ten minutes."""
    store, closed, counts = Store((ALL,)), set[str](), list[int]()

    async def count(world: World, name: str) -> None:
        with world.bus.watch(UpgradeState, client="test") as states:
            async for envelope in states:
                (closed.add if envelope.value.closed_gpus else closed.discard)(name)
                counts.append(len(closed))

    async def live(name: str, host: Host, memory: Memory, seconds: float) -> None:
        world = World(clock, host, memory=memory, store=store, name=name)
        world.bus.publish_state(ClusterNode(name=name, uid="u", labels={}), source="test")
        async with anyio.create_task_group() as counting:
            counting.start_soon(count, world, name)
            async with world.running(seconds):
                pass
            counting.cancel_scope.cancel()

    nodes = {name: (Host(), Memory()) for name in "abc"}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live, "a", *nodes["a"], 20.0)
        await anyio.sleep(2)
        for name in "bc":
            tasks.start_soon(live, name, *nodes[name], 1800.0)
        await anyio.sleep(600)
        assert (nodes["a"][1].kept[1].phase, closed) == (UpgradePhase.INSTALL, {"a"})
        tasks.start_soon(live, "a", *nodes["a"], 2 * LONG)
    assert [(host.module, memory.kept[1].ending) for host, memory in nodes.values()] == [(NEW, UpgradeEnding.DONE)] * 3
    assert (max(counts), closed, store.holders(ALL)) == (1, set(), [""])
    assert store.breaker(ALL).results == (True, True, True)


async def test_an_upgrade_without_a_slot_says_who_has_it_and_closes_nothing(clock: FakeClock) -> None:
    """A person may hold or abort it meanwhile; the slot is taken by whoever goes on."""
    store = Store((ALL,))
    store.hold(ALL, 0, OTHER)
    world = make_world(clock, store)
    world.bus.publish_state(HELD, source="test")
    async with world.running(200.0):
        why = "no slot of cluster is free: node-b, seen for "
        assert f"phase drain: {why}" in world.detail(DUE)
        assert [line.partition(why)[0] for line in describe(world.state) if why in line] == ["  waits      "]
        assert world.detail(UNDER_WAY) == ""
        assert (world.state.closed_gpus, world.pods.asked, store.holders(ALL)) == ({}, [], [OTHER])
        await world.order(PAUSE_UPGRADE)
        store.hold(ALL, 0, "")
        await anyio.sleep(RETRY_SECONDS)
        assert (store.holders(ALL), "paused by alice" in world.detail(DUE)) == ([""], True)
        await world.order(RESUME_UPGRADE)
        assert (store.holders(ALL), len(world.state.closed_gpus)) == ([MINE], 2)
        assert world.upgrade.began_seconds == pytest.approx(clock.wall(), abs=2.0)
        await world.order(ABORT_UPGRADE)
        assert (world.upgrade.ending, store.holders(ALL), world.state.closed_gpus) == (
            UpgradeEnding.ABORTED,
            [""],
            {},
        )
    assert store.breaker(ALL).results == ()


async def test_a_stop_of_the_cluster_opens_the_gpus_of_a_drain(clock: FakeClock) -> None:
    """Without an answer of the API server they stay as they are, with nobody asked to leave."""
    store = Store((ALL,))
    world = make_world(clock, store)
    world.bus.publish_state(HELD, source="test")
    store.is_away = True
    async with world.running(RETRY_SECONDS):
        assert (world.state.closed_gpus, "no route" in world.detail(DUE)) == ({}, True)
        store.is_away = False
        await anyio.sleep(RETRY_SECONDS)
        assert (store.holders(ALL), len(world.state.closed_gpus)) == ([MINE], 2)
        store.is_away = True
        await anyio.sleep(90)
        assert (len(world.state.closed_gpus), "no route" in world.detail(UNDER_WAY)) == (2, True)
        asked = list(world.pods.asked)
        await anyio.sleep(300)
        assert world.pods.asked == asked
        store.is_away = False
        store.suspend(ALL)
        await anyio.sleep(RETRY_SECONDS)
        assert "a person has suspended repairs in cluster" in world.detail(DUE)
        assert (store.holders(ALL), world.state.closed_gpus, world.detail(UPGRADE_DRAINING)) == ([""], {}, "")
        store.suspend(ALL, is_suspended=False)
        await anyio.sleep(RETRY_SECONDS)
        assert (store.holders(ALL), len(world.state.closed_gpus)) == ([MINE], 2)


async def test_whoever_is_past_the_drain_finishes_and_a_failure_is_told_to_the_breaker(clock: FakeClock) -> None:
    """The slot is renewed for as long as the command runs."""
    store, host = Store((ALL,)), Host()
    host.command, host.command_seconds = ToolAnswer(code=1, said="no space"), 1500.0
    async with make_world(clock, store, host).running(60.0) as world:
        assert (world.upgrade.phase, store.holders(ALL)) == (UpgradePhase.INSTALL, [MINE])
        store.suspend(ALL)
        await anyio.sleep(1300)
        assert store.writes >= 1300 // 360
        assert (store.holders(ALL), len(world.state.closed_gpus)) == ([MINE], 2)
        store.is_away = True
        await anyio.sleep(10 * LONG)
        assert (world.upgrade.ending, store.holders(ALL)) == (UpgradeEnding.FAILED, [MINE])
        store.is_away = False
        await anyio.sleep(RETRY_SECONDS)
        assert (store.holders(ALL), store.breaker(ALL).results) == ([""], (False,))


@pytest.mark.parametrize("phase", [UpgradePhase.DRAIN, UpgradePhase.INSTALL])
async def test_a_node_takes_its_slot_over_after_its_reboot(clock: FakeClock, phase: UpgradePhase) -> None:
    """Though others wait, and its fault session of the same number has nothing to do with the slot."""
    store, memory, host = Store((ALL,)), Memory(), Host()
    store.hold(ALL, 0, MINE)
    memory.kept[1], memory.boot, host.command_seconds = make_upgrade(phase), "two", 600.0
    host.module = ""
    async with make_world(clock, store, host, memory).running(400.0) as world:
        assert (world.upgrade.phase, store.holders(ALL)) == (UpgradePhase.INSTALL, ["a/two/upgrade-1/0"])
        await anyio.sleep(300)
        assert (world.upgrade.ending, store.holders(ALL)) == (UpgradeEnding.DONE, [""])


async def test_an_agent_gives_back_what_an_upgrade_that_ended_left(clock: FakeClock) -> None:
    """With its result; and the slot of an upgrade that a person holds before its drain."""
    store, memory = Store((ALL,)), Memory()
    now = clock.wall()
    ended = make_upgrade(UpgradePhase.RESTORE, ending=UpgradeEnding.DONE, ended_seconds=now, wanted=NEW)
    memory.kept = {1: ended, 2: make_upgrade(number=2, paused_by="alice")}
    store.hold(ALL, 0, "a/one/upgrade-2/0")
    async with make_world(clock, store, memory=memory).running() as world:
        assert (store.holders(ALL), world.state.closed_gpus) == ([""], {})
    memory.kept = {1: ended}
    store.hold(ALL, 0, MINE)
    host = Host()
    host.module = NEW
    async with make_world(clock, store, host, memory).running():
        assert (store.holders(ALL), store.breaker(ALL).results) == ([""], (True,))


async def test_without_an_api_server_nothing_is_upgraded_where_slots_are_needed(clock: FakeClock) -> None:
    world = make_world(clock, Store((ALL,)))
    world.ports = world.ports._replace(slots=UpgradeSlots(None, world.bus, world.live, clock))
    async with world.running():
        assert "there is no API server to ask for a slot" in world.detail(DUE)
        assert (world.state.closed_gpus, world.host.done) == ({}, [])
