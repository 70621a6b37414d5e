"""What only one of several replicas does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.lease import KubeLease
from nodeagent.extender.replica import Replica
from tests.component.extender.harness import OpenExtender, capacity, open_extender, open_server
from tests.fakes.fleet import FakeFleet
from tests.support.scheduling import limit
from tests.support.waiting import wait_until

CHOSEN = {
    "tencent.com/predicate-node": "n",
    "tencent.com/predicate-time": "1",
    "tencent.com/predicate-gpu-idx-0": "0",
    "mine": "1",
}


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now


@asynccontextmanager
async def open_replicas(tmp_path: Path) -> AsyncIterator[tuple[FakeFleet, OpenExtender, Hands, Replica, Replica]]:
    async with open_server() as server:
        server.put_node("n", capacity=capacity(1))
        async with open_extender(server, tmp_path) as extender:
            hands = Hands()
            lease = KubeLease(extender.client, "gpu", "nodeagent-extender", SystemClock())
            things = (extender.cluster, extender.annotations, hands.read)
            one, two = Replica(lease, "one", 15.0, *things), Replica(lease, "two", 15.0, *things)
            yield server, extender, hands, one, two


def lease_of(extender: OpenExtender) -> KubeLease:
    return KubeLease(extender.client, "gpu", "nodeagent-extender", SystemClock())


async def test_one_leads_and_another_takes_over(tmp_path: Path) -> None:
    """When nobody renewed the lease for as long as it is held, and not before."""
    async with open_replicas(tmp_path) as (_, extender, hands, one, two):
        lease = lease_of(extender)
        for replica in (one, two, one, two):
            await replica.take_turn(lease)
        assert (one.leads, two.leads) == (True, False)
        hands.now = 14.0
        await two.take_turn(lease)
        assert not two.leads
        hands.now = 20.0
        await two.take_turn(lease)
        await one.take_turn(lease)
        assert (one.leads, two.leads) == (False, True)


async def test_two_who_try_at_once_do_not_both_lead(tmp_path: Path) -> None:
    async with open_replicas(tmp_path) as (_, extender, _, one, two):
        lease = lease_of(extender)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.take_turn, lease)
            tasks.start_soon(two.take_turn, lease)
        assert [one.leads, two.leads].count(True) == 1


async def test_a_leader_that_cannot_renew_leads_until_its_time_is_over(tmp_path: Path) -> None:
    """Nobody else can have taken the lease before."""
    async with open_replicas(tmp_path) as (server, extender, hands, one, _):
        lease = lease_of(extender)
        await one.take_turn(lease)
        server.refuse.extend([500, 500])
        hands.now = 14.0
        await one.take_turn(lease)
        assert one.leads
        leads = []
        for hands.now in (15.0, 15.0):
            await one.take_turn(lease)
            leads.append(one.leads)
        assert leads == [False, True]


async def test_choices_that_came_to_nothing_are_taken_off(tmp_path: Path) -> None:
    """Of pods that are not bound, when they count no more; one that changed or is gone meanwhile is left alone."""
    async with open_replicas(tmp_path) as (server, extender, hands, one, _):
        server.put_pod("a", limit(10, 1), annotations=CHOSEN)
        server.put_pod("bound", limit(10, 1), node="n", annotations=CHOSEN)
        server.put_pod("fresh", limit(10, 1))
        await extender.wait_seen("fresh")
        assert await one.sweep() == 0
        hands.now = 10.0**9
        server.refuse.append(409)
        assert await one.sweep() == 0
        assert await one.sweep() == 1
        assert server.annotations("a") == {"mine": "1"}
        assert server.annotations("bound") == CHOSEN
        await extender.wait_seen("a")
        assert await one.sweep() == 0


async def test_it_runs_by_itself_and_gives_up_the_lease_at_the_end(tmp_path: Path) -> None:
    """So that the next replica need not wait."""
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        clock = SystemClock()
        lease = lease_of(extender)
        replica = Replica(lease, "one", 15.0, extender.cluster, extender.annotations, clock.monotonic)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replica.run)
            await wait_until(lambda: replica.leads)
            tasks.cancel_scope.cancel()
        found = await lease.read()
        assert found is not None
        assert found.holder == ""


async def test_a_single_replica_leads_without_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And sweeps; trouble with that is told and tried again."""
    monkeypatch.setattr("nodeagent.extender.replica.SWEEP_SECONDS", 0.01)
    async with open_server() as server, open_extender(server, tmp_path) as extender:
        server.put_pod("a", limit(10, 1), annotations=CHOSEN)
        await extender.wait_seen("a")
        replica = Replica(None, "one", 15.0, extender.cluster, extender.annotations, lambda: 10.0**9)
        server.refuse.append(500)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replica.run)
            await wait_until(lambda: server.annotations("a") == {"mine": "1"})
            tasks.cancel_scope.cancel()
        assert server.requests["get leases"] == 0


async def test_who_does_not_lead_sweeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One writer is enough for that."""
    monkeypatch.setattr("nodeagent.extender.replica.SWEEP_SECONDS", 0.001)
    async with open_replicas(tmp_path) as (server, extender, hands, one, two):
        await one.take_turn(lease_of(extender))
        server.put_pod("a", limit(10, 1), annotations=CHOSEN)
        await extender.wait_seen("a")
        hands.now = 10.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(two.run)
            await wait_until(lambda: server.requests["get leases"] >= 2)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert server.requests["patch pods"] == 0
