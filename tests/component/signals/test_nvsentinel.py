"""Faults between the bus and NVSentinel: told once, ended with the same entities, over lives and outages."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from nodeagent.components.signals.nvsentinel_task import NOT_KEPT, NOT_TOLD, Nvsentinel
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.config.sections.repairers import NvsentinelSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.grpc.calls import CallRefused
from nodeagent.edge.grpc.errors import Status
from nodeagent.edge.nvsentinel.connector import ConnectorUnavailable, PlatformConnector, encode_event
from nodeagent.edge.nvsentinel.proto import platform_connector_pb2 as wire
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import Verdict
from nodeagent.model.repairers import NvsentinelEvent
from tests.component.cluster.harness import settle
from tests.fakes.nvsentinel import REQUEST, FakePlatformConnector
from tests.support.files.memory_store import MemoryStore
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.slices import make_report
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

INVENTORY = make_inventory([make_gpu(0), make_gpu(1)])
UNAVAILABLE = CallRefused(Status.UNAVAILABLE, "away")
ILL = Verdict.UNHEALTHY


class DirectConnector(PlatformConnector):
    """The agent's own form of events, read by NVSentinel's, without a socket."""

    def __init__(self, nvsentinel: FakePlatformConnector) -> None:
        super().__init__(Path("/s"), "node-1")
        self.nvsentinel = nvsentinel

    async def tell(self, events: Sequence[NvsentinelEvent]) -> None:
        await anyio.lowlevel.checkpoint()
        sent = wire.HealthEvents(version=1, events=[encode_event(each, "node-1") for each in events])
        try:
            await self.nvsentinel.take(REQUEST.FromString(sent.SerializeToString()))
        except CallRefused as error:
            raise ConnectorUnavailable("/s", error.text) from error


class Stage:
    def __init__(self, clock: FakeClock, strategy: str = "store_only") -> None:
        self.clock = clock
        self.nvsentinel, self.store = FakePlatformConnector(), MemoryStore()
        self.configure(strategy=strategy)

    def configure(self, *, enabled: bool = True, strategy: str = "store_only") -> None:
        section = NvsentinelSettings(enabled=enabled, strategy=strategy)  # type: ignore[arg-type]
        self.settings = Settings(signals=SignalsSettings(nvsentinel=section))

    @asynccontextmanager
    async def living(self) -> AsyncIterator["Stage"]:
        """One life of the agent; the bus is new, NVSentinel and the file stay."""
        self.bus = Bus(self.clock)
        self.conditions = Conditions(self.bus, self.clock, CATALOGUE)
        self.live = LiveSettings(self.settings)
        connector = DirectConnector(self.nvsentinel)
        component = Nvsentinel(self.bus, self.conditions, self.clock, self.live, connector, self.store, rng=Random(1))
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await settle()
            yield self
            tasks.cancel_scope.cancel()

    async def judge(
        self, found: dict[int, list[tuple[str, Verdict]]] | None = None, inventory: Inventory = INVENTORY
    ) -> None:
        self.bus.publish_state(inventory, source="test")
        report = make_report(inventory, {gpu_uuid(index): each for index, each in (found or {}).items()})
        self.bus.publish_state(report, source="test")
        await settle()

    def checks(self) -> list[tuple[str, bool]]:
        """All events that NVSentinel has taken, in order: the check, and whether it is an end."""
        return [(event.checkName, event.isHealthy) for event in self.nvsentinel.events]

    def standing(self) -> set[str]:
        return {check for check, _ in self.nvsentinel.standing}

    def codes(self) -> set[str]:
        return {each.code for each in self.conditions.all_set()}


async def test_a_fault_is_told_once_and_ends_with_its_entities(clock: FakeClock) -> None:
    """Stored only; each fault by itself, so that the end of one leaves the other."""
    async with Stage(clock).living() as stage:
        await stage.judge()
        assert stage.nvsentinel.requests == 0
        await stage.judge({1: [("xid-79", ILL), ("hot", Verdict.SUSPECT)]})
        assert sorted(stage.checks()) == [("NodeagentHot", False), ("NodeagentXid79", False)]
        assert stage.nvsentinel.requests == 1
        assert stage.nvsentinel.acted_on == set()
        fatal = {event.checkName: (event.isFatal, list(event.errorCode)) for event in stage.nvsentinel.events}
        assert fatal == {"NodeagentXid79": (True, ["79"]), "NodeagentHot": (False, ["hot"])}
        await settle(3600)
        await stage.judge({1: [("hot", Verdict.SUSPECT)]})
        assert stage.standing() == {"NodeagentHot"}
        await stage.judge()
        assert (stage.standing(), len(stage.checks())) == (set(), 4)
        assert stage.codes() == set()


async def test_the_next_life_tells_no_fault_again_and_ends_what_is_over(clock: FakeClock) -> None:
    """Also where the GPU has another index by then; nothing ends before the GPU was looked at."""
    stage = Stage(clock)
    async with stage.living():
        await stage.judge({0: [("xid-79", ILL)], 1: [("remap-failed", ILL)]})
    async with stage.living():
        await stage.judge({0: [("no-answer", Verdict.UNKNOWN)], 1: [("no-answer", Verdict.UNKNOWN)]})
        await stage.judge({0: [("driver", ILL)], 1: [("driver", ILL)]})
        assert len(stage.checks()) == 2
        moved = make_inventory([replace(make_gpu(0), index=5), make_gpu(1)])
        await stage.judge({1: [("remap-failed", ILL)]}, moved)
        assert stage.checks()[2:] == [("NodeagentXid79", True)]
        assert stage.standing() == {"NodeagentRemapFailed"}


async def test_a_node_without_gpus_for_a_moment_ends_nothing(clock: FakeClock) -> None:
    async with Stage(clock).living() as stage:
        await stage.judge({0: [("xid-79", ILL)]})
        await stage.judge(inventory=replace(INVENTORY, gpus=()))
        assert stage.standing() == {"NodeagentXid79"}


async def test_what_happened_while_nvsentinel_was_away_is_told_later(clock: FakeClock) -> None:
    """The newest of each fault, with pauses that grow to a minute; the condition says why."""
    async with Stage(clock).living() as stage:
        stage.nvsentinel.refusal = UNAVAILABLE
        await stage.judge({0: [("xid-79", ILL)]})
        assert NOT_TOLD in stage.codes()
        for _ in range(100):
            await stage.judge({0: [("xid-79", ILL)], 1: [("xid-94", ILL)]})
            await stage.judge({0: [("xid-79", ILL)]})
        await settle(3600)
        assert 60 <= stage.nvsentinel.requests <= 150
        stage.nvsentinel.refusal = None
        await settle(61)
        assert stage.standing() == {"NodeagentXid79"}
        assert sorted(stage.checks()) == [("NodeagentXid79", False), ("NodeagentXid94", True)]
        assert NOT_TOLD not in stage.codes()


async def test_a_killed_agent_owes_what_was_not_taken(clock: FakeClock) -> None:
    """A fault is in the file before it leaves."""
    stage = Stage(clock)
    stage.nvsentinel.refusal = UNAVAILABLE
    async with stage.living():
        await stage.judge({0: [("xid-79", ILL)]})
    stage.nvsentinel.refusal = None
    async with stage.living():
        assert stage.standing() == {"NodeagentXid79"}
        await stage.judge()
        assert stage.standing() == set()


async def test_nvsentinel_acts_only_where_it_was_asked_to_and_has_the_node(clock: FakeClock) -> None:
    """Not before the node was read, and not on a node that NVSentinel has left; then the fault is told again."""
    async with Stage(clock, "execute").living() as stage:
        await stage.judge({0: [("xid-79", ILL)]})
        assert (stage.standing(), stage.nvsentinel.acted_on) == ({"NodeagentXid79"}, set())
        node = ClusterNode(name="node-1", uid="u", labels={"nvsentinel.dgxc.nvidia.com/managed": "false"})
        stage.bus.publish_state(node, source="test")
        await settle()
        assert (len(stage.checks()), stage.nvsentinel.acted_on) == (1, set())
        stage.bus.publish_state(replace(node, labels={}), source="test")
        await settle()
        assert (len(stage.checks()), stage.nvsentinel.acted_on) == (2, {"NodeagentXid79"})


async def test_the_end_of_a_fault_is_acted_on_as_the_fault_was(clock: FakeClock) -> None:
    """After a reload back to storing: an end that is only stored would leave the node cordoned for ever."""
    async with Stage(clock, "execute").living() as stage:
        stage.bus.publish_state(ClusterNode(name="node-1", uid="u"), source="test")
        await stage.judge({0: [("xid-79", ILL)]})
        stage.configure()
        stage.live.now = stage.settings
        stage.bus.publish_fact(ConfigurationReloaded(changed=("signals.nvsentinel.strategy",)), source="test")
        await settle()
        assert len(stage.checks()) == 1
        await stage.judge()
        (end,) = stage.nvsentinel.events[1:]
        assert (end.isHealthy, end.processingStrategy) == (True, wire.EXECUTE_REMEDIATION)


async def test_a_life_with_the_setting_off_ends_what_was_told(clock: FakeClock) -> None:
    """And tells nothing else."""
    stage = Stage(clock)
    async with stage.living():
        await stage.judge({0: [("xid-79", ILL)]})
    stage.configure(enabled=False)
    async with stage.living():
        await stage.judge({0: [("xid-79", ILL)], 1: [("xid-94", ILL)]})
        assert stage.checks() == [("NodeagentXid79", False), ("NodeagentXid79", True)]


async def test_a_disk_that_fails_keeps_nothing_from_being_told(clock: FakeClock) -> None:
    """The condition says what a restart will not know; the next minute writes it."""
    async with Stage(clock).living() as stage:
        stage.store.failure = "no space left on device"
        await stage.judge({0: [("xid-79", ILL)]})
        assert (stage.standing(), stage.codes()) == ({"NodeagentXid79"}, {NOT_KEPT})
        stage.store.failure = ""
        await settle(61)
        assert stage.codes() == set()
        assert b"NodeagentXid79" in (stage.store.body or b"")


@pytest.mark.parametrize("body", [b"[]", b'{"told": {"a": 1}}'])
async def test_a_file_that_makes_no_sense_is_moved_aside(clock: FakeClock, body: bytes) -> None:
    stage = Stage(clock)
    stage.store.body, stage.store.troubles = body, ("the newest copy is damaged",)
    async with stage.living():
        await stage.judge({0: [("xid-79", ILL)]})
        assert stage.store.discarded.startswith("not a table of told faults: ")
        assert stage.standing() == {"NodeagentXid79"}
