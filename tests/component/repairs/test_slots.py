"""Slots of repairs as a node meets them: nothing before a slot, the slot for as long as the repair, and back."""

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.component import PLANNED, Repairs
from nodeagent.components.repairs.slots_task import RepairSlots
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.config.sections.repairers import DrainSettings, SlotDomainSettings, SlotsSettings
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.repairers import REPAIRS_LABEL
from nodeagent.model.repairs import Ending, Outcome, Rung, SlotUse
from nodeagent.model.slots import CLUSTER, Domain
from nodeagent.rules.repair.slots import HELD_SECONDS
from tests.component.repairs.test_drain import Draining
from tests.component.repairs.test_repairs import OFF_THE_BUS, SETTLED_SECONDS
from tests.fakes.repair_slots import Store
from tests.support.repairs import make_fault, make_session
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

RACK, ALL = Domain(key="rack", value="r1", slots=1), Domain(key=CLUSTER, value="", slots=1)
MINE, OTHER = "a/one/40/0", "node-b/x/1/0"
RETRY_SECONDS = 95.0
"""After it a refused session has asked again."""

DOMAINS = (SlotDomainSettings(label="rack", slots=1), SlotDomainSettings(label=CLUSTER, slots=1))
ACTING = RepairsSettings(mode="act", slots=SlotsSettings(domains=DOMAINS))
REBOOTING = replace(ACTING, up_to="reboot", reboot_by="command", reboot_command=("reboot",))


class Bounded(Draining):
    """A node in mode act whose repairs need a slot of its rack and one of the cluster."""

    def __init__(
        self,
        clock: FakeClock,
        store: Store | None = None,
        settings: RepairsSettings = ACTING,
        *,
        is_known: bool = True,
    ) -> None:
        super().__init__(clock)
        self.live = LiveSettings(Settings(repairs=settings))
        self.store = store or Store((RACK, ALL))
        self.slots = RepairSlots(self.store, "a", self.memory.read_boot, clock)
        if is_known:
            self.label(rack="r1")

    def label(self, **labels: str) -> None:
        self.bus.publish_state(ClusterNode(name="a", uid="u", labels=labels), source="test")

    @property
    def holders(self) -> tuple[str, str]:
        return self.store.holders(RACK)[0], self.store.holders(ALL)[0]

    @property
    def plan(self) -> str:
        return "".join(self.details(PLANNED))


async def test_nobody_is_asked_to_leave_before_the_repair_has_its_slots(clock: FakeClock) -> None:
    """Who has the slot since when is said; with the slot the pods leave, and the proof gives the slot back."""
    world = Bounded(clock)
    world.store.hold(ALL, 0, OTHER)
    async with world.running():
        await world.fail(3, make_fault())
        assert world.plan == "would reset GPU 3; no slot of cluster is free: node-b, seen for 0 min"
        await anyio.sleep(300)
        assert (world.holders, world.pods.asked, dict(world.state.closed_gpus)) == (("", OTHER), [], {})
        told = world.state.slots
        assert told == SlotUse(
            allowed={"rack r1": 1, "cluster": 1}, refused=told.refused if told else 0, is_waiting=True
        )
        assert 300 / 90 <= told.refused <= 1 + 300 / 30
        world.store.hold(ALL, 0, "")
        await anyio.sleep(RETRY_SECONDS)
        assert (world.holders, len(world.state.closed_gpus)) == ((MINE, MINE), 1)
        assert not world.plan.startswith("would reset GPU 3; no slot")
        await anyio.sleep(60)
        world.hold()
        await anyio.sleep(8)
        assert "reset 3" in world.host.done
        world.judge({})
        await anyio.sleep(60)
        assert (world.state.sessions[0].ending, world.holders) == (Ending.REPAIRED, ("", ""))
        assert world.store.breaker(RACK).results == world.store.breaker(ALL).results == (True,)


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (None, "the node's labels are not known yet, which name its domains"),
        ({}, "the node has no label rack: label the node, or change `repairs.slots.domains`"),
        ({"rack": "r2"}, "a Lease of rack r2 is not there: "),
    ],
)
async def test_a_node_without_its_domain_repairs_nothing(
    clock: FakeClock, labels: dict[str, str] | None, why: str
) -> None:
    world = Bounded(clock, is_known=False)
    world.hold()
    if labels is not None:
        world.label(**labels)
    async with world.running():
        await world.fail(3, make_fault())
        await anyio.sleep(600)
        assert world.plan.startswith(f"would reset GPU 3; {why}")
        assert (world.host.done, world.holders) == ([], ("", ""))
        await world.fail(3)
        assert world.state.slots is not None
        assert not world.state.slots.is_waiting


async def test_without_an_api_server_nothing_is_repaired(clock: FakeClock) -> None:
    """Neither where there is none, nor before the node's labels are known, nor while it does not answer."""
    world = Bounded(clock)
    world.hold()
    world.slots = None
    async with world.running():
        await world.fail(3, make_fault())
        assert world.plan == "would reset GPU 3; there is no API server to ask for a slot of `repairs.slots`"
        assert world.state.slots == SlotUse(refused=1, is_waiting=True)
    silent = Bounded(clock)
    silent.hold()
    silent.store.is_silent = True
    async with silent.running():
        await silent.fail(3, make_fault())
        await anyio.sleep(20)
        assert silent.plan == "would reset GPU 3; the API server did not answer about slots within 20 s"
        silent.store.is_silent = False
        await anyio.sleep(RETRY_SECONDS)
        assert "reset 3" in silent.host.done
    assert world.host.done == []


async def test_an_answer_that_fails_in_the_middle_leaves_the_gpu_closed_and_the_drain_waiting(clock: FakeClock) -> None:
    """And the slot is still the repair's once there are answers again."""
    async with Bounded(clock).running() as world:
        await world.fail(3, make_fault())
        world.store.is_away = True
        await anyio.sleep(61)
        world.hold()
        await anyio.sleep(150)
        assert (world.host.done, len(world.state.closed_gpus), world.holders) == ([], 1, (MINE, MINE))
        assert "no route" in world.plan
        world.store.is_away = False
        await anyio.sleep(RETRY_SECONDS)
        assert "reset 3" in world.host.done


async def test_a_person_stops_the_cluster_within_a_minute(clock: FakeClock) -> None:
    """A drain ends, its GPU is open again and its slots are back; and goes on when the person lets it."""
    async with Bounded(clock).running() as world:
        await world.fail(3, make_fault())
        assert world.holders == (MINE, MINE)
        world.store.suspend(ALL)
        await anyio.sleep(61)
        assert world.plan == "would reset GPU 3; a person has suspended repairs in cluster"
        assert (world.holders, dict(world.state.closed_gpus), world.line) == (("", ""), {}, "")
        assert world.state.slots is not None
        assert world.state.slots.allowed["cluster"] == 0
        world.store.suspend(ALL, is_suspended=False)
        await anyio.sleep(RETRY_SECONDS)
        assert world.holders == (MINE, MINE)


async def test_a_stop_leaves_an_act_under_way_its_slots_until_its_end(clock: FakeClock) -> None:
    """And what came of the act is told to the breakers."""
    world = Bounded(clock)
    world.hold()
    world.host.takes_seconds = 290.0
    async with world.running():
        await world.fail(3, make_fault())
        world.store.suspend(ALL)
        await anyio.sleep(280)
        assert world.holders == (MINE, MINE)
        await anyio.sleep(160)
        (session,) = world.state.sessions
        assert (session.attempts[0].outcome, session.rung) == (Outcome.FAILED, Rung.REBOOT)
        assert world.holders == ("", "")
        assert world.store.breaker(RACK).results == (False,)


async def test_a_drain_that_waits_for_a_person_lets_other_nodes_have_its_slots(clock: FakeClock) -> None:
    """The GPU stays closed; once it is empty the repair takes its slots anew."""
    drain = DrainSettings(wait_seconds=10.0, deadline_seconds=50.0)
    async with Bounded(clock, settings=replace(ACTING, drain=drain)).running() as world:
        await world.fail(3, make_fault())
        assert world.holders == (MINE, MINE)
        await anyio.sleep(70)
        assert (world.holders, len(world.state.closed_gpus)) == (("", ""), 1)
        assert world.line == "GPU 3: team/train: it is still there after 50 s: it is asked no more"
        world.hold()
        await anyio.sleep(1)
        assert world.holders == (MINE, MINE)
        await anyio.sleep(5)
        assert "reset 3" in world.host.done


async def test_a_session_that_may_act_no_more_gives_its_slots_back(clock: FakeClock) -> None:
    """By a mark on the node, or because the fault went; no repair took place, and no breaker hears of one."""
    async with Bounded(clock).running() as world:
        await world.fail(3, make_fault())
        world.label(rack="r1", **{REPAIRS_LABEL: "off"})
        await anyio.sleep(1)
        assert world.holders == ("", "")
        world.label(rack="r1")
        await anyio.sleep(1)
        assert world.holders == (MINE, MINE)
        await world.fail(3)
        assert (world.state.sessions[0].ending, world.holders) == (Ending.RECOVERED, ("", ""))
    assert world.store.breaker(RACK).results == ()


async def test_slots_that_cannot_be_given_back_now_are_given_back_later(clock: FakeClock) -> None:
    async with Bounded(clock).running() as world:
        await world.fail(3, make_fault())
        world.store.is_away = True
        await world.fail(3)
        assert world.holders == (MINE, MINE)
        world.store.is_away = False
        await anyio.sleep(61)
        assert world.holders == ("", "")


@pytest.mark.parametrize("settings", [ACTING, replace(ACTING, mode="observe")])
async def test_an_agent_gives_back_what_the_agent_before_left(clock: FakeClock, settings: RepairsSettings) -> None:
    """Of a session that was closed meanwhile with its result, and in mode observe too."""
    world = Bounded(clock, settings=settings)
    now = clock.wall()
    open_one = make_session(40, 3, Rung.SERVICE)
    closed = replace(make_session(41, 2), ending=Ending.REPAIRED, closed_seconds=now, opened_seconds=now)
    world.memory.kept = {40: open_one, 41: closed, 42: replace(closed, number=42, closed_seconds=now - 7200.0)}
    world.store.hold(RACK, 0, MINE)
    world.store.hold(ALL, 0, "a/one/41/0")
    world.judge({3: (OFF_THE_BUS,)})
    component = Repairs(world.bus, world.conditions, clock, world.live, world.memory, slots=world.slots)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: component.run(task_status=task_status))
        await anyio.sleep(SETTLED_SECONDS + 1)
        tasks.cancel_scope.cancel()
    assert (world.holders, world.store.breaker(ALL).results) == (("", ""), (True,))


async def test_a_node_takes_its_slots_over_after_its_reboot(clock: FakeClock) -> None:
    """For the proof, whatever has been said of the cluster meanwhile; then they go back with the result."""
    first = Bounded(clock, settings=REBOOTING)
    first.hold()
    async with first.running():
        await first.fail(3, OFF_THE_BUS)
        await anyio.sleep(2)
        assert first.host.done == ["reboot: session 40 of nodeagent: xid-79"]
        assert first.store.slots[ALL.name_slot(0)].seconds == HELD_SECONDS[Rung.REBOOT]
    second = Bounded(clock, first.store, REBOOTING)
    second.hold()
    second.memory = second.host.memory = first.memory
    second.memory.boot = "two"
    second.slots = RepairSlots(first.store, "a", second.memory.read_boot, clock)
    async with second.running():
        assert second.state.sessions[0].ending is Ending.REPAIRED
        await anyio.sleep(1)
        assert (second.holders, second.store.breaker(ALL).results) == (("", ""), (True,))


async def test_a_higher_rung_holds_its_slots_for_longer(clock: FakeClock) -> None:
    """A reset that did not help is followed by a reboot with the same slots."""
    world = Bounded(clock, settings=REBOOTING)
    world.hold()
    async with world.running():
        await world.fail(3, make_fault())
        await anyio.sleep(200)
        assert [one.rung for one in world.state.sessions[0].attempts] == [Rung.RESET, Rung.REBOOT]
        assert (world.holders, world.store.slots[RACK.name_slot(0)].seconds) == ((MINE, MINE), 2700.0)
        assert world.store.breaker(RACK).results == ()
