"""Mode act: the intent before the act, what came of it, and what the next agent finds of an act that was cut short."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.acting_task import ActPorts
from nodeagent.components.repairs.component import PLANNED, Repairs
from nodeagent.components.repairs.drain_task import DomainDrain
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.core.log.audit import Change, keeping
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DriverReleased, DriverUnavailable
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import ComputeMode, Gpu, GpuReadout, Mig
from nodeagent.model.ids import PciAddress
from nodeagent.model.proof import ProofPlan, ProverReadings
from nodeagent.model.remedies import Remedy
from nodeagent.model.repairers import MANAGED_LABEL
from nodeagent.model.repairs import Ending, FaultSession, Outcome, Rung, ToolAnswer
from tests.component.repairs.test_repairs import NODE, OFF_THE_BUS, SETTLED_SECONDS, Memory, World
from tests.fakes.nvidia_smi.answers import ANSWERS
from tests.support.gpus import gpu_uuid
from tests.support.repairs import READY, make_fault
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

ILL = make_fault()
DONE = ToolAnswer(code=0)


class Host:
    """The driver, its program, the prover and the channel for a reboot; says what was done, in order."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.done = list(answers), list[str]()
        self.gpus = {gpu.uuid: replace(gpu, persistence_mode=True) for gpu in NODE.gpus}
        self.takes_seconds, self.setting = 5.0, DONE
        self.refuses_release = self.refuses_resume = self.refuses_reading = False
        self.reboot, self.readings = DONE, ProverReadings()
        self.withdrawals = list[ToolAnswer]()
        self.lost_by_reset: dict[str, object] = {}
        self.memory: Memory | None = None

    async def release(self, reason: str) -> None:
        if self.refuses_release:
            raise DriverReleased("by hand")
        self.done.append(f"release: {reason}")

    async def resume(self) -> None:
        if self.refuses_resume:
            raise DriverUnavailable("resume", "no module")
        self.done.append("resume")

    async def read_inventory(self) -> GpuReadout:
        if self.refuses_reading:
            raise DriverUnavailable("enumerate GPUs", "no module")
        return GpuReadout(gpus=tuple(self.gpus.values()))

    async def reset(self, addresses: Sequence[PciAddress], *, is_bus: bool, timeout_seconds: float) -> ToolAnswer:
        assert self.memory is not None
        assert any(one.under_way for one in self.memory.kept.values()), "an act without a durable intent"
        indexes = [str(gpu.index) for gpu in NODE.gpus if gpu.pci.address in addresses]
        self.done.append(f"{'bus ' if is_bus else ''}reset {','.join(indexes)}")
        answer = ANSWERS[self.answers.pop(0)]
        await anyio.sleep(timeout_seconds if answer.hangs else self.takes_seconds)
        if answer.hangs:
            return ToolAnswer(code=None, said=f"no end within {timeout_seconds:g} s")
        for uuid, gpu in self.gpus.items():
            if gpu.pci.address in addresses and answer.code == 0:
                self.gpus[uuid] = replace(gpu, **self.lost_by_reset)
        return ToolAnswer(code=answer.code, said=answer.said)

    async def set_persistence(self, address: PciAddress, *, is_on: bool) -> ToolAnswer:
        self._note(address, f"persistence {'on' if is_on else 'off'}")
        return self.setting

    async def set_power_limit(self, address: PciAddress, milliwatts: int) -> ToolAnswer:
        self._note(address, f"power {milliwatts}")
        return self.setting

    async def set_compute_mode(self, address: PciAddress, mode: ComputeMode) -> ToolAnswer:
        self._note(address, f"compute mode {mode.name}")
        return self.setting

    async def set_application_clocks(self, address: PciAddress, memory_mhz: int, graphics_mhz: int) -> ToolAnswer:
        self._note(address, f"clocks {memory_mhz},{graphics_mhz}")
        return self.setting

    def _note(self, address: PciAddress, what: str) -> None:
        index = next(gpu.index for gpu in NODE.gpus if gpu.pci.address == address)
        self.done.append(f"{what} {index}")

    async def prove(self, gpu: str, plan: ProofPlan, peers: tuple[str, ...] = ()) -> ProverReadings:
        self.done.append(f"prove {gpu} {plan.with_peers} {peers}")
        return self.readings

    async def request_reboot(self, reason: str) -> ToolAnswer:
        self.done.append(f"reboot: {reason}")
        return self.reboot

    async def withdraw_reboot(self) -> ToolAnswer:
        self.done.append("withdraw")
        return self.withdrawals.pop(0)


class ActingWorld(World):
    """A node in mode act; its GPUs are well for the verdicts from a reset with success on."""

    def __init__(
        self,
        clock: FakeClock,
        host: Host,
        memory: Memory | None = None,
        *,
        settings: RepairsSettings | None = None,
        has_prover: bool = False,
    ) -> None:
        super().__init__(clock, memory)
        self.live = LiveSettings(Settings(repairs=settings or RepairsSettings(mode="act")))
        self.host, host.memory = host, self.memory
        prover = host if has_prover else None
        drain = DomainDrain(self.bus, self.conditions, clock, self.live, None, None)
        self.ports = ActPorts(host, host, host.request_reboot, drain, prover, host.withdraw_reboot)  # type: ignore[arg-type]  # of the source only what is used
        self.heals, self.told = True, list[str]()
        inventory = replace(NODE, gpus=tuple(host.gpus.values()))
        self.bus.publish_state(inventory, source="test")
        self.bus.publish_state(AllocationTable(), source="test")

    @asynccontextmanager
    async def running(self, seconds: float = SETTLED_SECONDS) -> AsyncIterator["ActingWorld"]:
        component = Repairs(self.bus, self.conditions, self.clock, self.live, self.memory, self.ports)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._heal)
            tasks.start_soon(self._keep_cordons)
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            await anyio.sleep(seconds)
            yield self
            tasks.cancel_scope.cancel()

    async def _heal(self) -> None:
        with self.bus.listen(GpuEventReported, client="heal") as facts:
            async for envelope in facts:
                self.told.append(envelope.value.kind)
                if self.heals:
                    self.judge({})

    @property
    def session(self) -> FaultSession:
        (found,) = self.memory.kept.values()
        return found


async def test_a_gpu_is_reset_and_the_session_closed_by_the_polls(clock: FakeClock) -> None:
    """Free again within the reset's own time and the polls that a return takes; the audit log says what and why."""
    host, changes = Host("done"), list[Change]()
    with keeping(changes.append):
        async with ActingWorld(clock, host).running() as world:
            await world.fail(3, ILL)
            assert world.details(PLANNED) == ["reset GPU 3: the attempt is under way"]
            await anyio.sleep(host.takes_seconds + 15)
            assert (world.session.ending, world.session.attempts[0].outcome) == (Ending.REPAIRED, Outcome.PROVEN)
            assert world.told == ["gpu_reset"]
    assert host.done == [
        "release: session 40 resets GPUs",
        "persistence off 3",
        "reset 3",
        "persistence on 3",
        "resume",
    ]
    assert [(one.action, one.detail) for one in changes][1:] == [
        ("reset under way", "mode is act, for xid-119"),
        ("reset proven", "mode is act, for xid-119"),
        ("closed, repaired", "mode is act, for xid-119"),
    ]


async def test_an_exit_code_of_0_is_no_proof(clock: FakeClock) -> None:
    """The fault stays: the reset has failed, and the session climbs to a rung that the agent does not take."""
    world = ActingWorld(clock, Host("done"))
    world.heals = False
    async with world.running():
        await world.fail(3, ILL)
        await anyio.sleep(60)
        assert world.session.under_way is not None
        await anyio.sleep(100)
        assert (world.session.rung, world.session.attempts[0].outcome) == (Rung.REBOOT, Outcome.FAILED)
        assert world.details(PLANNED) == [
            "would request a reboot of the node for GPU 3; rung reboot is above `repairs.up_to`: reset"
        ]
        await anyio.sleep(3600)
    assert len([one for one in world.host.done if one.startswith("reset")]) == 1


async def test_a_reset_without_an_end_is_given_up_and_not_repeated(clock: FakeClock) -> None:
    """The component goes on meanwhile: a second fault is told."""
    async with ActingWorld(clock, Host("hang")).running() as world:
        await world.fail(3, ILL)
        await world.fail(3, ILL, make_fault("xid-48"))
        assert "joined" not in str(world.session.ending)
        assert len(world.session.evidence) == 2
        await anyio.sleep(310)
        assert (world.session.rung, world.session.attempts[0].outcome) == (Rung.REBOOT, Outcome.UNKNOWN)
        assert world.host.done[-2:] == ["persistence on 3", "resume"]


async def test_a_refusal_for_a_process_is_no_attempt_and_not_repeated_blindly(clock: FakeClock) -> None:
    async with ActingWorld(clock, Host("in-use")).running() as world:
        await world.fail(3, ILL)
        await anyio.sleep(600)
        (attempt,) = world.session.attempts
        assert (attempt.outcome, attempt.counts, world.session.rung) == (Outcome.IN_USE, False, Rung.RESET)
        assert "was not seen to leave" in world.details(PLANNED)[0]


async def test_a_refusal_for_peers_is_tried_again_with_the_peers(clock: FakeClock) -> None:
    async with ActingWorld(clock, Host("incomplete", "done")).running() as world:
        await world.fail(0, ILL)
        await anyio.sleep(40)
        assert world.session.ending is Ending.REPAIRED
        assert [one for one in world.host.done if one.startswith("reset")] == ["reset 0", "reset 0,1,2,3"]


@pytest.mark.parametrize(
    ("trouble", "outcome", "words"),
    [
        ("refuses_release", Outcome.STOPPED, "the driver was not let go"),
        ("refuses_resume", Outcome.FAILED, "the driver was not taken back: cannot resume: no module"),
        ("refuses_reading", Outcome.FAILED, "settings were not put back: cannot enumerate GPUs: no module"),
    ],
)
async def test_a_driver_in_trouble_is_told(clock: FakeClock, trouble: str, outcome: Outcome, words: str) -> None:
    host = Host("off-the-bus")
    setattr(host, trouble, True)
    async with ActingWorld(clock, host).running() as world:
        await world.fail(3, ILL)
        await anyio.sleep(20)
        (attempt,) = world.session.attempts
        assert attempt.outcome is outcome
        assert words in attempt.detail


async def test_the_prover_has_a_word_before_the_polls(clock: FakeClock) -> None:
    """A GPU that computes wrongly is not repaired; one in MIG mode, or without a library, is left to the polls."""
    host = Host("done")
    host.readings = ProverReadings(stopped="cuMemcpyDtoH failed", call="cuMemcpyDtoH", code=214)
    async with ActingWorld(clock, host, has_prover=True).running() as world:
        await world.fail(3, ILL)
        await anyio.sleep(20)
        assert world.session.attempts[0].outcome is Outcome.FAILED
        assert "the proof of GPU 3 failed: prover: cuMemcpyDtoH failed" in world.session.attempts[0].detail
    for mig in (None, Mig(enabled=True, pending=True)):
        host = Host("done")
        host.gpus[gpu_uuid(3)] = replace(host.gpus[gpu_uuid(3)], mig=mig)
        async with ActingWorld(clock, host, has_prover=True).running() as world:
            await world.fail(3, ILL)
            await anyio.sleep(20)
            assert world.session.ending is Ending.REPAIRED
            assert any(one.startswith("prove") for one in host.done) == (mig is None)


async def test_an_act_that_the_agent_did_not_survive_has_failed_and_its_settings_are_put_back(clock: FakeClock) -> None:
    """Killed between the intent and the end: the next agent climbs, and sets what the reset took."""
    host = Host("hang")
    async with ActingWorld(clock, host).running() as world:
        await world.fail(3, ILL)
        memory = world.memory
        kept = {number: replace(one) for number, one in memory.kept.items()}
    memory.kept, after = kept, Host()
    after.gpus[gpu_uuid(3)] = replace(after.gpus[gpu_uuid(3)], persistence_mode=False)
    world = ActingWorld(clock, after, memory)
    world.judge({3: (ILL,)})
    async with world.running():
        assert (world.session.attempts[0].outcome, world.session.rung) == (Outcome.UNKNOWN, Rung.REBOOT)
        assert after.done == ["persistence on 3"]


@pytest.mark.parametrize("is_well", [True, False])
async def test_a_reboot_is_requested_and_the_next_boot_has_the_proof(clock: FakeClock, *, is_well: bool) -> None:
    settings = RepairsSettings(mode="act", up_to="reboot", reboot_by="command", reboot_command=("reboot",))
    host = Host()
    async with ActingWorld(clock, host, settings=settings).running() as world:
        await world.fail(3, OFF_THE_BUS)
        await anyio.sleep(600)
        assert host.done == ["reboot: session 40 of nodeagent: xid-79"]
        assert world.session.under_way is not None
    world.memory.boot = "two"
    after = ActingWorld(clock, host, world.memory, settings=settings)
    after.judge({} if is_well else {3: (OFF_THE_BUS,)})
    async with after.running():
        expected = (Ending.REPAIRED, Rung.REBOOT) if is_well else (None, Rung.SERVICE)
        assert (after.session.ending, after.session.rung) == expected
    assert len(host.done) == 1


async def test_a_reboot_that_cannot_be_requested_is_told_and_no_attempt(clock: FakeClock) -> None:
    settings = RepairsSettings(mode="act", up_to="reboot", reboot_by="reboot_required_file")
    host = Host()
    host.reboot = ToolAnswer(code=None, said="read-only file system")
    async with ActingWorld(clock, host, settings=settings).running() as world:
        await world.fail(3, OFF_THE_BUS)
        await anyio.sleep(60)
        assert world.session.attempts[0].outcome is Outcome.STOPPED
        assert "the reboot was not requested: read-only file system" in world.details(PLANNED)[0]


async def test_a_drain_of_unused_gpus_is_judged_by_the_next_polls(clock: FakeClock) -> None:
    """What is still there then is reset."""
    world = ActingWorld(clock, Host("done"))
    async with world.running():
        await world.fail(3, make_fault("remap-pending", Remedy.DRAIN_AND_RESET))
        await anyio.sleep(40)
        assert [one.rung for one in world.session.attempts] == [Rung.DRAIN, Rung.RESET]
        assert world.session.ending is Ending.REPAIRED


async def test_a_node_of_another_repairer_or_with_a_released_driver_is_left_alone(clock: FakeClock) -> None:
    host = Host("done")
    async with ActingWorld(clock, host).running() as world:
        world.bus.publish_state(ClusterNode(name="n", uid="u", labels={MANAGED_LABEL: "false"}), source="test")
        await world.fail(3, ILL)
        assert f"the node's mark {MANAGED_LABEL}=false stops it" in world.details(PLANNED)[0]
        world.bus.publish_state(DriverState(phase=DriverPhase.RELEASED), source="test")
        world.bus.publish_state(ClusterNode(name="n", uid="u"), source="test")
        await anyio.sleep(1)
        assert "the driver is released" in world.details(PLANNED)[0]
        assert host.done == []
        world.bus.publish_state(READY, source="test")
        await anyio.sleep(30)
        assert world.session.ending is Ending.REPAIRED


def lose(gpu: Gpu) -> Gpu:
    return replace(gpu, lost="off the bus")


async def test_an_act_under_way_has_its_gpus_whatever_the_wall_clock_says(clock: FakeClock) -> None:
    """The clock was set by days: the attempt ends with the act, and nobody gets the GPU or the slots meanwhile."""
    host = Host("done")
    async with ActingWorld(clock, host).running() as world:
        await world.fail(3, ILL)
        (attempt,) = world.session.attempts
        late = replace(attempt, deadline_seconds=0.0)
        world.memory.kept[world.session.number] = replace(world.session, attempts=(late,))
        await world.fail(3, ILL, make_fault("xid-48"))
        assert world.session.under_way == late
        await anyio.sleep(60)
        assert (world.session.attempts[0].outcome, world.session.ending) == (Outcome.PROVEN, Ending.REPAIRED)


async def test_no_act_begins_before_the_last_one_has_let_go(clock: FakeClock) -> None:
    """The next rung waits until the reset's process is given up, however late that is."""
    settings = RepairsSettings(mode="act", up_to="reboot", reboot_by="command", reboot_command=("reboot",))
    host = Host("done")
    host.takes_seconds = 2000.0
    async with ActingWorld(clock, host, settings=settings).running() as world:
        world.heals = False
        await world.fail(3, ILL)
        await anyio.sleep(1000)
        assert (world.session.under_way, world.session.rung) == (world.session.attempts[0], Rung.RESET)
        assert not any(one.startswith("reboot") for one in host.done)
        await anyio.sleep(1500)
        assert world.session.attempts[0].outcome is Outcome.FAILED
        assert any(one.startswith("reboot") for one in host.done)


async def test_an_act_whose_session_the_journal_has_lost_holds_back_the_next_one(clock: FakeClock) -> None:
    """Whoever has put a journal aside: the reset goes on to its end, and only then another GPU is reset."""
    host = Host("done", "done")
    async with ActingWorld(clock, host).running() as world:
        world.heals = False
        await world.fail(3, ILL)
        world.memory.kept.clear()
        await world.fail(2, ILL)
        await anyio.sleep(1)
        assert [one for one in host.done if one.startswith("reset")] == ["reset 3"]
        await anyio.sleep(60)
        assert [one for one in host.done if one.startswith("reset")] == ["reset 3", "reset 2"]
