"""Fault sessions between verdicts, journal and clock: what a user sees in mode observe."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.component import PLANNED, UNSETTLED, Repairs
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.audit import Change, keeping
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.cordons import CordonSource, CordonTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import RepairStepped
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import FoundFault
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairs import Ending, FaultSession, Outcome, RepairState, Rung
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.rules.cordons import plan_repairs
from tests.support.gpus import gpu_uuid, make_node
from tests.support.repairs import READY, make_fault, make_report
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

NODE = make_node(4)
OFF_THE_BUS = make_fault("xid-79", Remedy.POWER_CYCLE)
SETTLED_SECONDS = 31.0
"""Two polls for the verdicts and three equal ones, five seconds apart, and the beat."""


class Memory:
    """The journal's part: survives the component and the boot."""

    def __init__(self) -> None:
        self.kept, self.boot = dict[int, FaultSession](), "one"
        self.is_read, self.is_broken, self.writes = True, False, 0

    def read_boot(self) -> str:
        return self.boot

    def sessions(self) -> Mapping[int, FaultSession] | None:
        return dict(self.kept) if self.is_read else None

    async def keep_session(self, session: FaultSession) -> FaultSession:
        if self.is_broken:
            raise JournalUnavailable("/state/journal", "no space left on device")
        self.writes += 1
        kept = session if session.number else replace(session, number=len(self.kept) + 40)
        self.kept[kept.number] = kept
        return kept


class World:
    def __init__(self, clock: FakeClock, memory: Memory | None = None) -> None:
        self.clock, self.bus = clock, Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.memory = memory or Memory()
        self.live = LiveSettings(Settings(repairs=RepairsSettings(mode="observe")))
        self.steps: list[str] = []
        self.keeps_cordons = True
        self.bus.publish_state(NODE, source="test")
        self.bus.publish_state(READY, source="test")
        self.judge({})

    @asynccontextmanager
    async def running(self, seconds: float = SETTLED_SECONDS) -> AsyncIterator["World"]:
        component = Repairs(self.bus, self.conditions, self.clock, self.live, self.memory)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await anyio.sleep(seconds)
            yield self
            tasks.cancel_scope.cancel()

    async def _keep_cordons(self) -> None:
        kept = CordonTable()
        with self.bus.watch(RepairState, client="test cordons") as states:
            async for envelope in states:
                before = kept.by_source.get(CordonSource.REPAIR, ())
                asked = envelope.value.closed_gpus if self.keeps_cordons else {}
                now = plan_repairs(asked, self.bus.read(Inventory) or make_node(0), before, self.clock.wall())
                if now != before:
                    kept = CordonTable(by_source={CordonSource.REPAIR: now})
                    self.bus.publish_state(kept, source="test")

    async def _listen(self) -> None:
        with self.bus.listen(RepairStepped, client="test") as facts:
            async for envelope in facts:
                self.steps.append(envelope.value.step)

    def judge(self, faults: dict[int, tuple[FoundFault, ...]]) -> None:
        self.bus.publish_state(make_report(NODE, faults), source="test")

    async def fail(self, index: int, *faults: FoundFault) -> None:
        self.judge({index: faults})
        await anyio.sleep(1)

    @property
    def state(self) -> RepairState:
        found = self.bus.read(RepairState)
        assert found is not None
        return found

    def details(self, code: str) -> list[str]:
        return [one.detail for one in self.conditions.all_set() if one.code == code]


async def test_a_fault_is_told_as_one_line_and_its_end_takes_the_line_back(clock: FakeClock) -> None:
    """The audit log has a line for each step; nothing else is done."""
    changes: list[Change] = []
    with keeping(changes.append):
        async with World(clock).running() as world:
            assert (world.state.mode, world.state.unsettled, world.details(PLANNED)) == ("observe", "", [])
            await world.fail(3, make_fault())
            assert world.details(PLANNED) == ["would reset GPU 3; mode is observe"]
            assert world.state.opened == 1
            assert gpu_uuid(3) not in world.state.reasons
            await world.fail(3)
            assert world.details(PLANNED) == []
            assert world.state.closed == {Ending.RECOVERED: 1}
            assert world.state.reasons[gpu_uuid(3)] == "no fault is known"
            assert world.steps == ["opened by xid-119 at rung reset", "closed, recovered"]
    assert [(one.kind, one.name, one.action, one.detail) for one in changes] == [
        ("repair", "session 40", "opened by xid-119 at rung reset", "mode is observe"),
        ("repair", "session 40", "closed, recovered", "mode is observe"),
    ]


async def test_an_idle_node_writes_nothing(clock: FakeClock) -> None:
    async with World(clock).running(3600) as world:
        await world.fail(1, make_fault("hot", Remedy.CHECK_COOLING))
        await anyio.sleep(3600)
        assert (world.memory.writes, world.state.sessions) == (0, ())
        assert world.state.reasons[gpu_uuid(1)].startswith("no repair of the agent mends it: hot")


async def test_a_later_and_worse_fault_climbs_in_the_same_session(clock: FakeClock) -> None:
    async with World(clock).running() as world:
        await world.fail(2, make_fault())
        await world.fail(2, make_fault(), OFF_THE_BUS)
        (session,) = world.state.sessions
        assert session.rung is Rung.REBOOT
        assert world.details(PLANNED) == ["would request a reboot of the node for GPU 2; mode is observe"]
        assert world.steps[1:] == ["joined by xid-79", "climbed from rung reset to reboot"]


async def test_nothing_opens_before_the_findings_have_settled(clock: FakeClock) -> None:
    """Two polls of the verdicts' own, then three equal ones."""
    world = World(clock)
    world.judge({0: (make_fault(),)})
    async with world.running(1):
        assert world.memory.kept == {}
        assert world.state.unsettled.startswith("the findings settle after the start of the agent")
        assert "xid-119: the findings settle" in world.state.reasons[gpu_uuid(0)]
        await anyio.sleep(SETTLED_SECONDS)
        assert [one.rung for one in world.memory.kept.values()] == [Rung.RESET]


async def test_findings_that_never_settle_count_after_ten_minutes(clock: FakeClock) -> None:
    world = World(clock)
    world.bus.publish_state(DriverState(phase=DriverPhase.NOT_LOADED, detail="no module"), source="test")
    world.judge({0: (make_fault(),)})
    async with world.running(599):
        assert (world.memory.kept, world.details(UNSETTLED)) == ({}, [])
        await anyio.sleep(10)
        assert world.details(UNSETTLED) == ["the driver is not ready: no module"]
        assert len(world.memory.kept) == 1


async def test_an_agent_that_starts_again_has_the_same_session(clock: FakeClock) -> None:
    world = World(clock)
    async with world.running():
        await world.fail(3, make_fault())
    before = dict(world.memory.kept)
    async with World(clock, world.memory).running(1) as after:
        assert after.details(PLANNED) == ["would reset GPU 3; mode is observe"]
        after.judge({3: (make_fault(),)})
        await anyio.sleep(SETTLED_SECONDS)
        assert (after.memory.kept, after.steps) == (before, [])


async def test_another_boot_settles_before_the_session_is_judged(clock: FakeClock) -> None:
    """A fault that is still there climbs: the node was rebooted by another hand, and it did not help."""
    world = World(clock)
    async with world.running():
        await world.fail(3, OFF_THE_BUS)
    world.memory.boot = "two"
    after = World(clock, world.memory)
    after.judge({3: (OFF_THE_BUS,)})
    async with after.running(1):
        (session,) = after.memory.kept.values()
        assert (session.boot, session.rung, session.under_way is not None) == ("two", Rung.REBOOT, True)
        await anyio.sleep(SETTLED_SECONDS)
        (session,) = after.memory.kept.values()
        assert (session.rung, session.attempts[0].outcome) == (Rung.SERVICE, Outcome.FAILED)
        assert after.details(PLANNED) == ["would ask for service of GPU 3; mode is observe"]


async def test_a_reboot_that_helped_closes_the_session(clock: FakeClock) -> None:
    world = World(clock)
    async with world.running():
        await world.fail(3, OFF_THE_BUS)
    world.memory.boot = "two"
    async with World(clock, world.memory).running() as after:
        assert [one.ending for one in after.memory.kept.values()] == [Ending.RECOVERED]


async def test_the_driver_may_ask_for_a_bus_reset(clock: FakeClock) -> None:
    async with World(clock).running() as world:
        sample = NodeSample(gpus=(GpuSample(uuid=gpu_uuid(1), recovery_action=6),), time_seconds=1.0)
        world.bus.publish_state(sample, source="test")
        await world.fail(1, make_fault("recovery-action", Remedy.REBOOT_NODE))
        assert world.details(PLANNED) == ["would reset the bus of GPU 1; mode is observe"]


async def test_a_session_that_cannot_be_written_is_not_told_and_tried_again(clock: FakeClock) -> None:
    world = World(clock)
    async with world.running():
        world.memory.is_broken = True
        await world.fail(3, make_fault())
        assert (world.state.sessions, world.steps, world.details(PLANNED)) == ((), [], [])
        world.memory.is_broken = False
        await anyio.sleep(6)
        assert world.details(PLANNED) == ["would reset GPU 3; mode is observe"]


async def test_sessions_are_taken_up_once_the_journal_is_read(clock: FakeClock) -> None:
    world = World(clock)
    async with world.running():
        await world.fail(3, OFF_THE_BUS)
    world.memory.boot, world.memory.is_read = "two", False
    after = World(clock, world.memory)
    after.judge({3: (OFF_THE_BUS,)})
    async with after.running():
        assert not after.state.sessions
        after.memory.is_read = True
        await anyio.sleep(6)
        assert [one.boot for one in after.state.sessions] == ["two"]


async def test_the_mark_that_stops_a_repair_is_among_the_obstacles(clock: FakeClock) -> None:
    """It goes from the plan when the mark goes from the node."""
    async with World(clock).running() as world:
        await world.fail(3, make_fault())
        marked = ClusterNode(name="n", uid="u", labels={"nodeagent.io/repairs": "off"})
        for node, told in (
            (marked, ("the node's mark nodeagent.io/repairs=off stops it",)),
            (replace(marked, labels={}), ()),
        ):
            world.bus.publish_state(node, source="test")
            await anyio.sleep(1)
            assert world.state.plans[0].obstacles == ("mode is observe", *told)
