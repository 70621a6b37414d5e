"""The rung that reloads the host's driver: what leaves and comes back, and what an agent killed in between left out."""

from collections.abc import Sequence

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.repairs.component import PLANNED
from nodeagent.components.repairs.reload_task import DriverReload
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.core.log.audit import Change, keeping
from nodeagent.edge.host.driver.module_loader import HostServices
from nodeagent.model.driver import LoadedModule
from nodeagent.model.errors import NodeagentError
from nodeagent.model.repairs import Attempt, Ending, Outcome, Rung, ToolAnswer
from tests.component.repairs.test_acting import DONE, ILL, ActingWorld, Host
from tests.component.repairs.test_repairs import Memory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

SETTINGS = RepairsSettings(mode="act", up_to="reload_driver")
SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager")
LOADED = (
    LoadedModule(name="nvidia_uvm", references=0),
    LoadedModule(name="nvidia", references=1, holders=("nvidia_uvm",)),
)


class Kernel:
    """The host's modules and services, and the driver's program, which refuses every reset."""

    def __init__(self, host: Host) -> None:
        self.host, self.returns = host, LOADED
        self.loaded: tuple[LoadedModule, ...] = LOADED
        self.removal, self.problem, self.trouble, self.late_trouble = DONE, "", "", ""
        self.active, self.is_host_driver = {"nvidia-persistenced"}, True

    async def read_loaded(self) -> tuple[LoadedModule, ...]:
        if self.trouble:
            raise NodeagentError(self.trouble)
        return self.loaded

    async def unload(self, modules: Sequence[str]) -> ToolAnswer:
        self.host.done.append(f"unload {' '.join(modules)}")
        await anyio.sleep(3)
        if self.removal.code == 0:
            self.loaded = ()
        return self.removal

    async def load(self, modules: Sequence[str]) -> str:
        self.host.done.append(f"load {' '.join(modules)}")
        self.loaded, self.trouble = self.returns, self.late_trouble
        return self.problem

    async def run(self, command: Sequence[str], timeout_seconds: float) -> ToolAnswer:
        assert command[0] == "systemctl"
        action, name = command[1], command[-1]
        if action == "is-active":
            return ToolAnswer(code=0 if name in self.active else 3)
        self.host.done.append(f"{action} {name}")
        return self.host.setting

    def make_reload(self) -> DriverReload:
        return DriverReload(self, HostServices(self.run, lambda: SERVICES), lambda: self.is_host_driver)


def make_world(clock: FakeClock, kernel: Kernel, memory: Memory | None = None) -> ActingWorld:
    """A node on which a reset is refused although nobody has the GPU."""
    world = ActingWorld(clock, kernel.host, memory, settings=SETTINGS)
    world.ports = world.ports._replace(reload=kernel.make_reload())
    return world


async def fail_until_reload(world: ActingWorld) -> Attempt:
    """The reset of GPU 0 with all its peers is refused for good; the attempt at the next rung, after a minute."""
    await world.fail(0, ILL)
    await anyio.sleep(60)
    return world.session.attempts[-1]


async def test_services_stop_and_the_modules_leave_and_come_back(clock: FakeClock) -> None:
    """Nothing before the intent is durable; the GPUs are proven by the polls."""
    kernel, changes = Kernel(Host("incomplete", "incomplete")), list[Change]()
    async with make_world(clock, kernel).running() as world:
        with keeping(changes.append):
            attempt = await fail_until_reload(world)
        assert attempt.rung is Rung.RELOAD_DRIVER
        assert attempt.driver is not None
        assert (attempt.driver.services, attempt.driver.modules) == (("nvidia-persistenced",), ("nvidia_uvm", "nvidia"))
        begin = kernel.host.done.index("stop nvidia-persistenced")
        assert kernel.host.done[begin - 5 : begin] == [
            "release: session 40 resets GPUs",
            *(f"persistence off {index}" for index in range(4)),
        ]
        assert kernel.host.done[begin : begin + 4] == [
            "stop nvidia-persistenced",
            "unload nvidia_uvm nvidia",
            "load nvidia nvidia_uvm",
            "start nvidia-persistenced",
        ]
        assert kernel.host.done[-1] == "resume"
        assert (attempt.outcome, world.session.ending) == (Outcome.PROVEN, Ending.REPAIRED)
        assert world.told == ["gpu_reset"] * 4
    told = [(one.action, one.detail) for one in changes if one.kind == "service"]
    assert told == [("stop", "for a reload of the driver"), ("start", "for a reload of the driver")]


BLOCKED = (LoadedModule(name="nvidia", references=1, holders=("nvidia_fs",)),)


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        ({"loaded": BLOCKED}, Outcome.REFUSED, "the module nvidia is needed by nvidia_fs"),
        (
            {"removal": ToolAnswer(code=1, said="modprobe: FATAL: Module nvidia is in use.")},
            Outcome.REFUSED,
            "exit code 1: modprobe: FATAL: Module nvidia is in use.",
        ),
        ({"removal": ToolAnswer(code=1, said="Operation not permitted")}, Outcome.STOPPED, "not permitted"),
        ({"removal": ToolAnswer(code=None, said="no end within 120 s")}, Outcome.UNKNOWN, "no end within 120 s"),
        ({"problem": "Key was rejected"}, Outcome.FAILED, "the driver did not come back: Key was rejected"),
        ({"returns": LOADED[1:]}, Outcome.FAILED, "the driver did not come back: modprobe left out nvidia_uvm"),
        ({"trouble": "/sys does not answer"}, Outcome.STOPPED, "/sys does not answer"),
        ({"late_trouble": "/sys hangs"}, Outcome.FAILED, "the driver did not come back: /sys hangs"),
        ({"loaded": ()}, Outcome.STOPPED, "the kernel shows no module of the driver"),
    ],
)
async def test_a_reload_that_does_not_come_about_is_told(
    clock: FakeClock, change: dict[str, object], outcome: Outcome, words: str
) -> None:
    """Services run again whatever happened; without an end of the removal nothing is loaded over it."""
    kernel = Kernel(Host("incomplete", "incomplete"))
    for name, value in change.items():
        setattr(kernel, name, value)
    async with make_world(clock, kernel).running() as world:
        attempt = await fail_until_reload(world)
        assert (attempt.rung, attempt.outcome) == (Rung.RELOAD_DRIVER, outcome)
        assert words in attempt.detail
        assert ("start nvidia-persistenced" in kernel.host.done, kernel.host.done[-1]) == (True, "resume")
        assert (world.session.rung is Rung.REBOOT) == outcome.counts
        is_loaded = any(one.startswith("load") for one in kernel.host.done)
        assert is_loaded == (
            any(one.startswith("unload") for one in kernel.host.done) and outcome is not Outcome.UNKNOWN
        )


async def test_a_service_that_does_not_start_again_is_told(clock: FakeClock) -> None:
    kernel = Kernel(Host("incomplete", "incomplete"))
    kernel.host.setting = ToolAnswer(code=5, said="Unit not found")
    async with make_world(clock, kernel).running() as world:
        attempt = await fail_until_reload(world)
        assert "systemctl did not start nvidia-persistenced: exit code 5: Unit not found" in attempt.detail


@pytest.mark.parametrize("is_same_boot", [True, False])
async def test_what_a_killed_agent_took_away_comes_back_at_once(clock: FakeClock, *, is_same_boot: bool) -> None:
    """Before the findings settle, which they do not without a driver; a boot brings everything back by itself."""
    kernel = Kernel(Host("incomplete", "incomplete"))
    async with make_world(clock, kernel).running() as world:
        await fail_until_reload(world)
        session = world.session
    attempt = replace(session.attempts[-1], outcome=None, ended_seconds=None)
    cut = replace(session, ending=None, closed_seconds=None, attempts=(*session.attempts[:-1], attempt))
    world.memory.kept = {session.number: cut}
    world.memory.boot = world.memory.boot if is_same_boot else "two"
    kernel.host.done.clear()
    async with make_world(clock, kernel, world.memory).running(1.0):
        assert kernel.host.done == ["load nvidia nvidia_uvm", "start nvidia-persistenced"] * is_same_boot


async def test_a_driver_of_a_container_is_left_alone(clock: FakeClock) -> None:
    kernel = Kernel(Host("incomplete", "incomplete"))
    kernel.is_host_driver = False
    async with make_world(clock, kernel).running() as world:
        attempt = await fail_until_reload(world)
        assert attempt.rung is Rung.RESET
        assert "the agent reloads only a driver of the host" in world.details(PLANNED)[0]
