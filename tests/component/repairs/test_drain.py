"""The drain of a GPU in mode act: who is asked to leave and when, and what a person on call reads meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.acting_task import ActPorts
from nodeagent.components.repairs.component import Repairs
from nodeagent.components.repairs.drain_task import DRAINING, DomainDrain
from nodeagent.components.repairs.slots_task import RepairSlots
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.config.sections.repairers import DrainSettings
from nodeagent.edge.host.processes.device_users import HostDeviceUsers
from nodeagent.edge.kube.evictions import KubeDraining
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cluster import ClusterNode, Eviction
from nodeagent.model.drains import BoundPod, DeviceUser, EvictionAnswer
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import DeviceId
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairers import MANAGED_LABEL
from nodeagent.model.repairs import Ending, Outcome, Rung
from tests.component.repairs.test_acting import Host
from tests.component.repairs.test_repairs import SETTLED_SECONDS, World
from tests.support.allocations import GPU
from tests.support.gpus import gpu_uuid
from tests.support.repairs import make_fault
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

POD = PodIdentity(namespace="team", name="train", uid="u")
BUDGET = "The disruption budget b needs 1 healthy pods and has 1 currently"
PENDING = make_fault("remap-pending", Remedy.DRAIN_AND_RESET)


class Pods(KubeDraining):
    """The API server with one pod, which leaves as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.rehearsed: list[str] = []
        self.seen: BoundPod | None = BoundPod(pod=POD, version="7", controller="ReplicaSet")
        self.answer, self.error = EvictionAnswer(eviction=Eviction.ASKED), ""
        self.is_silent = False

    async def read_pod(self, pod: PodIdentity) -> BoundPod | None:
        if self.error:
            raise NodeagentError(self.error)
        return self.seen

    async def evict(self, seen: BoundPod) -> EvictionAnswer:
        self.asked.append(("evict", seen.version))
        return self.answer

    async def rehearse(self, pod: PodIdentity) -> EvictionAnswer:
        self.rehearsed.append(pod.name)
        if self.error:
            raise NodeagentError(self.error)
        if self.is_silent:
            await anyio.sleep_forever()
        return self.answer

    async def delete(self, seen: BoundPod) -> bool:
        self.asked.append(("delete", seen.version))
        return len(self.asked) % 2 == 0


class Users(HostDeviceUsers):
    def __init__(self) -> None:
        self.found, self.error = tuple[DeviceUser, ...](), ""
        self.next = list[tuple[DeviceUser, ...]]()
        """What the next looks find."""

    async def read_users(self) -> tuple[DeviceUser, ...]:
        if self.error:
            raise NodeagentError(self.error)
        return self.next.pop(0) if self.next else self.found


class Draining(World):
    """A node in mode act; cordons are kept as the component `offering` keeps them."""

    def __init__(self, clock: FakeClock, drain: DrainSettings | None = None, slots: RepairSlots | None = None) -> None:
        super().__init__(clock)
        self.live = LiveSettings(Settings(repairs=RepairsSettings(mode="act", drain=drain or DrainSettings())))
        self.pods, self.users, self.has_api, self.slots = Pods(), Users(), True, slots
        self.host = Host("done", "done")
        self.host.memory = self.memory
        self.hold(POD)

    def hold(self, *pods: PodIdentity) -> None:
        table = [
            Allocation(number=one, resource=GPU, devices=(DeviceId(gpu_uuid(3)),), since_seconds=0.0, pod=pod)
            for one, pod in enumerate(pods)
        ]
        self.bus.publish_state(AllocationTable(allocations=tuple(table)), source="test")

    @asynccontextmanager
    async def running(self, seconds: float = SETTLED_SECONDS) -> AsyncIterator[Self]:
        pods = self.pods if self.has_api else None
        self.drain = DomainDrain(self.bus, self.conditions, self.clock, self.live, pods, self.users)
        ports = ActPorts(self.host, self.host, self.host.request_reboot, self.drain)  # type: ignore[arg-type]  # of the source only what is used
        component = Repairs(self.bus, self.conditions, self.clock, self.live, self.memory, ports, self.slots)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            tasks.start_soon(self._keep_cordons)
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await anyio.sleep(seconds)
            yield self
            tasks.cancel_scope.cancel()

    @property
    def line(self) -> str:
        return "".join(self.details(DRAINING))


async def test_pods_are_told_waited_for_and_asked_with_what_was_read(clock: FakeClock) -> None:
    """The GPU is closed at once, the pod asked after a minute, and a budget asked again as it allows."""
    async with Draining(clock).running() as world:
        world.pods.answer = EvictionAnswer(eviction=Eviction.BLOCKED, detail=BUDGET, retry_after_seconds=25.0)
        await world.fail(3, make_fault())
        assert dict(world.state.closed_gpus) == {gpu_uuid(3): "session 40, xid-119"}
        assert world.line.startswith("GPU 3: team/train: it is asked to leave in ")
        await anyio.sleep(50)
        assert world.pods.asked == []
        await anyio.sleep(20)
        assert world.pods.asked == [("evict", "7")]
        assert world.line == f"GPU 3: team/train: {BUDGET}"
        await anyio.sleep(5)
        assert len(world.pods.asked) == 1
        await anyio.sleep(20)
        assert len(world.pods.asked) == 2
        assert world.line == f"GPU 3: team/train: {BUDGET}"
        world.pods.answer = EvictionAnswer(eviction=Eviction.ASKED)
        await anyio.sleep(30)
        assert world.line == "GPU 3: team/train: it is asked to leave"
        world.hold()
        await anyio.sleep(1)
        assert (world.line, len(world.state.closed_gpus)) == ("", 1)


async def test_the_end_of_the_session_opens_the_gpu(clock: FakeClock) -> None:
    async with Draining(clock).running() as world:
        await world.fail(3, make_fault())
        await world.fail(3)
        assert (dict(world.state.closed_gpus), world.line, world.pods.asked) == ({}, "", [])


async def test_nobody_is_asked_before_the_gpu_is_closed(clock: FakeClock) -> None:
    world = Draining(clock)
    world.keeps_cordons = False
    async with world.running():
        await world.fail(3, make_fault())
        await anyio.sleep(300)
        assert world.pods.asked == []
        assert world.line == "GPU 3: team/train: the GPU is not closed to new pods yet"
        world.hold()
        await anyio.sleep(1)
        (session,) = world.state.sessions
        held = await world.drain.bring(session, session.gpus, frozenset())
        assert held == ("whoever comes: the GPU is not closed to new pods yet",)


async def test_after_the_deadline_nobody_is_asked_any_more(clock: FakeClock) -> None:
    drain = DrainSettings(wait_seconds=10.0, deadline_seconds=50.0)
    async with Draining(clock, drain).running() as world:
        await world.fail(3, make_fault())
        await anyio.sleep(60)
        asked = len(world.pods.asked)
        await anyio.sleep(3600)
        assert len(world.pods.asked) == asked
        assert world.line == "GPU 3: team/train: it is still there after 50 s: it is asked no more"


async def test_a_pod_on_a_dead_gpu_is_deleted_after_the_deadline_where_the_settings_say_so(clock: FakeClock) -> None:
    drain = DrainSettings(wait_seconds=10.0, deadline_seconds=20.0, after_deadline="delete_where_dead")
    async with Draining(clock, drain).running() as world:
        world.pods.answer = EvictionAnswer(eviction=Eviction.BLOCKED, detail=BUDGET)
        await world.fail(3, make_fault())
        await anyio.sleep(60)
        assert ("delete", "7") in world.pods.asked
        assert world.line.endswith("on a dead GPU: it is deleted")


async def test_a_gpu_that_merely_waits_for_a_reset_keeps_its_pod(clock: FakeClock) -> None:
    drain = DrainSettings(wait_seconds=10.0, deadline_seconds=20.0, after_deadline="delete_where_dead")
    async with Draining(clock, drain).running() as world:
        await world.fail(3, PENDING)
        await anyio.sleep(3600)
        assert {what for what, _ in world.pods.asked} == {"evict"}
        assert world.line.endswith("it is asked no more")


async def test_a_process_without_a_pod_is_named_and_an_unseen_one_counts(clock: FakeClock) -> None:
    """The moment before an act sees who came since."""
    world = Draining(clock)
    world.hold()
    world.users.found = (DeviceUser(pid=4711, command="Xorg", minors=frozenset({3})),)
    async with world.running():
        await world.fail(3, make_fault())
        assert world.line == "GPU 3: process 4711 (Xorg): a person has to end it"
        domain = world.state.sessions[0].gpus
        assert await world.drain.compare(domain) == ("process 4711 (Xorg)",)
        world.users.found = ()
        assert await world.drain.compare(domain) == ()
        world.users.error = "/proc does not answer"
        assert await world.drain.compare(domain) == ("somebody unseen",)
        await anyio.sleep(20)
        assert world.line == "GPU 3: somebody unseen: /proc does not answer"


async def test_before_the_holders_are_known_a_gpu_is_not_empty(clock: FakeClock) -> None:
    world = World(clock)
    drain = DomainDrain(world.bus, world.conditions, clock, world.live, None, None)
    assert await drain.compare(()) == ("somebody unseen",)


async def test_without_an_api_server_and_with_a_failing_one_the_reason_is_told(clock: FakeClock) -> None:
    world = Draining(clock)
    world.has_api = False
    async with world.running():
        await world.fail(3, make_fault())
        await anyio.sleep(90)
        assert world.line == "GPU 3: team/train: there is no API server that could ask it to leave"
    other = Draining(clock)
    other.pods.error = "cannot read the pod"
    async with other.running():
        await other.fail(3, make_fault())
        await anyio.sleep(90)
        assert other.line == "GPU 3: team/train: cannot read the pod"
        other.pods.error, other.pods.seen = "", None
        await anyio.sleep(30)
        assert other.line == "GPU 3: team/train: the API server has it no more, and its containers end"
        other.pods.seen = BoundPod(pod=POD, version="8", controller="DaemonSet")
        await anyio.sleep(30)
        assert other.line.startswith("GPU 3: team/train: its DaemonSet would make it again on this node")
        assert other.pods.asked == []


@pytest.mark.parametrize(
    ("is_there", "ending", "rung"), [(True, None, Rung.RESET), (False, Ending.REPAIRED, Rung.DRAIN)]
)
async def test_an_empty_gpu_is_polled_again_at_rung_drain(
    clock: FakeClock, is_there: bool, ending: Ending | None, rung: Rung
) -> None:
    """A fault that stays climbs to a reset, for which the GPU stays closed; one that went closes the session."""
    async with Draining(clock).running() as world:
        await world.fail(3, PENDING)
        world.hold()
        await anyio.sleep(1)
        (session,) = world.state.sessions
        assert session.under_way is not None
        world.judge({3: (PENDING,)} if is_there else {})
        await anyio.sleep(40)
        (session,) = world.state.sessions
        assert (session.ending, session.rung) == (ending, rung)
        assert session.attempts[0].outcome is (Outcome.FAILED if is_there else Outcome.PROVEN)
        assert bool(world.state.closed_gpus) is is_there


async def test_a_session_above_the_highest_rung_drains_nobody(clock: FakeClock) -> None:
    async with Draining(clock).running() as world:
        await world.fail(3, make_fault("xid-79", Remedy.POWER_CYCLE))
        await anyio.sleep(3600)
        assert (dict(world.state.closed_gpus), world.pods.asked, world.line) == ({}, [], "")


async def test_a_pod_that_came_later_is_asked_in_its_turn(clock: FakeClock) -> None:
    """And is forgotten once it has left."""
    async with Draining(clock).running() as world:
        await world.fail(3, make_fault())
        await anyio.sleep(62)
        assert len(world.pods.asked) == 1
        world.hold(replace(POD, name="other", uid="o"))
        await anyio.sleep(1)
        world.hold(POD)
        await anyio.sleep(1)
        assert len(world.pods.asked) >= 2


XORG = DeviceUser(pid=4711, command="Xorg", minors=frozenset({3}))


async def test_a_gpu_that_everybody_has_left_is_reset_and_opened(clock: FakeClock) -> None:
    """Closed from the first step to the proof, and reset only then."""
    async with Draining(clock).running() as world:
        await world.fail(3, make_fault())
        await anyio.sleep(70)
        assert (world.pods.asked[0], world.host.done) == (("evict", "7"), [])
        world.hold()
        await anyio.sleep(7)
        assert "reset 3" in world.host.done
        assert len(world.state.closed_gpus) == 1
        world.judge({})
        await anyio.sleep(60)
        (session,) = world.state.sessions
        assert (session.ending, dict(world.state.closed_gpus)) == (Ending.REPAIRED, {})


async def test_a_process_that_comes_in_the_last_moment_is_not_hit(clock: FakeClock) -> None:
    """The attempt does not count, and is made again once the process was seen to leave."""
    world = Draining(clock)
    world.hold()
    async with world.running():
        world.users.next, world.users.found = [(), (), (XORG,)], (XORG,)
        await world.fail(3, make_fault())
        await anyio.sleep(30)
        (session,) = world.state.sessions
        assert [(one.outcome, one.detail) for one in session.attempts] == [
            (Outcome.IN_USE, "came meanwhile: process 4711 (Xorg)")
        ]
        assert world.host.done == []
        world.users.found = ()
        await anyio.sleep(15)
        assert "reset 3" in world.host.done


async def test_a_node_with_the_mark_of_another_repairer_is_not_drained(clock: FakeClock) -> None:
    async with Draining(clock).running() as world:
        world.bus.publish_state(ClusterNode(name="n", uid="u", labels={MANAGED_LABEL: "false"}), source="test")
        await world.fail(3, make_fault())
        await anyio.sleep(300)
        assert (world.pods.asked, dict(world.state.closed_gpus)) == ([], {})


async def test_a_refusal_for_an_unseen_process_is_tried_once_more_after_a_start(clock: FakeClock) -> None:
    """Whoever refused it may have left meanwhile; without a start nobody tries again."""
    first = Draining(clock)
    first.hold()
    first.host.answers = ["in-use", "done"]
    async with first.running():
        await first.fail(3, make_fault())
        await anyio.sleep(600)
        assert first.host.done.count("reset 3") == 1
    second = Draining(clock)
    second.hold()
    second.memory = second.host.memory = first.memory
    second.judge({3: (make_fault(),)})
    async with second.running():
        await anyio.sleep(30)
        assert second.host.done.count("reset 3") == 1
