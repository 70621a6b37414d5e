"""Whoever switches `mig.manage` off after a kill leaves nobody paused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.components.mig.clients import GIVE_BACK_SECONDS
from nodeagent.components.mig.paused_clients_task import PausedClients
from nodeagent.components.mig.request import Remembered, decode_remembered, encode_remembered
from nodeagent.model.cluster import PAUSED_FOR_MIG
from tests.component.mig.harness import Store, World
from tests.component.mig.test_making_way import EXPORTER, Cluster, meet
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

LEFT = Remembered(layout="all-1g.10gb", origin="me", paused={EXPORTER: "true"})


def left_paused(clock: FakeClock) -> tuple[World, Cluster]:
    """The cluster and the memory that a killed agent has left."""
    world = World(clock)
    cluster = meet(world)
    cluster.labels[EXPORTER] = PAUSED_FOR_MIG
    world.store.body = encode_remembered(LEFT)
    return world, cluster


@asynccontextmanager
async def running(world: World, cluster: Cluster | None) -> AsyncIterator[None]:
    store: Store = world.store
    component = PausedClients(world.conditions, world.clock, store, cluster)  # type: ignore[arg-type]  # as far as it is used
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: component.run(task_status=task_status))
        yield
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()


def recall(world: World) -> Remembered:
    assert world.store.body is not None
    return decode_remembered(world.store.body)


async def test_an_agent_that_cuts_nothing_gives_back_what_is_owed(clock: FakeClock) -> None:
    """And keeps what else is remembered, for when GPUs are cut again."""
    world, cluster = left_paused(clock)
    async with running(world, cluster):
        await anyio.sleep(1)
        assert cluster.written == [(EXPORTER, "true")]
    assert recall(world) == Remembered(layout="all-1g.10gb", origin="me")
    async with running(world, cluster):
        await anyio.sleep(60)
    assert len(cluster.written) == 1


async def test_it_is_tried_until_it_is_done(clock: FakeClock) -> None:
    """The API server, the disk, and a pause for another reason on top: told as long as it lasts."""
    world, cluster = left_paused(clock)
    cluster.is_away = True
    async with running(world, cluster):
        await anyio.sleep(20)
        assert world.codes() == {"mig-clients-paused"}
        cluster.is_away, world.store.trouble = False, "no space left on device"
        await anyio.sleep(GIVE_BACK_SECONDS + 1)
        assert world.codes() == {"mig-clients-paused"}
        world.store.trouble = ""
        await anyio.sleep(GIVE_BACK_SECONDS + 1)
        assert cluster.labels[EXPORTER] == "true"
        assert not world.codes()
    assert not recall(world).paused


async def test_without_an_api_server_it_is_told(clock: FakeClock) -> None:
    """Somebody has taken the credentials away with the setting."""
    world, _ = left_paused(clock)
    async with running(world, None):
        await anyio.sleep(30)
        assert world.codes() == {"mig-clients-paused"}


@pytest.mark.parametrize("body", [None, b"something else", encode_remembered(Remembered(layout="x"))])
async def test_where_nothing_is_owed_nothing_is_asked(clock: FakeClock, body: bytes | None) -> None:
    """Nor where what is remembered cannot be read."""
    world, cluster = left_paused(clock)
    world.store.body, cluster.is_away = body, True
    async with running(world, cluster):
        await anyio.sleep(60)
        assert not world.codes()
    assert cluster.written == []
