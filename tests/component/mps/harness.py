"""The component over simulated GPUs; its daemons are processes of the stand-in, or made up where time is to jump."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from nodeagent.app.optional_components import NO_DAEMONS
from nodeagent.components.mps.component import Mps
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import Mps as MpsSharing
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.handle import Handle
from nodeagent.core.values import ActiveConditions
from nodeagent.edge.mps.host import HostMps, MpsHostSettings
from nodeagent.edge.mps.processes import find_daemon
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import MpsRefused
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.gpu import ComputeMode, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.mps import MpsDaemon, MpsPhase, MpsState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.ports import GpuAccess, MpsHost, ProcessPlaces
from nodeagent.rules.mps.access import plan_place
from nodeagent_sim.gpus.source import SimulatedGpus
from nodeagent_sim.mps import SimulatedMps
from tests.component.mig.harness import PROFILES, Book, make_holdings
from tests.fakes.mps import FakeMps

EXCLUSIVE, DEFAULT = ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.DEFAULT


def share(replicas: int, **entry: Any) -> SharingSettings:
    """GPUs shared by MPS: the first, unless something else is said."""
    entry = {"devices": 1, **entry}
    return SharingSettings(mps=MpsSharing(resources=(SharedResource(name="gpu", replicas=replicas, **entry),)))


def slice_time(replicas: int) -> SharingSettings:
    """GPUs shared by turns."""
    return SharingSettings(timeSlicing=TimeSlicing(resources=(SharedResource(name="gpu", replicas=replicas),)))


class World:
    """Everything round the component, which may be started again and again."""

    def __init__(
        self,
        clock: Clock,
        place: Path,
        *,
        fake: FakeMps | None = None,
        program: Path | None = None,
        sharing: SharingSettings | None = None,
        profile: str = "a100-40gb",
        places: ProcessPlaces | None = None,
        **mps: Any,
    ) -> None:
        self.clock, self.fake, self.root = clock, fake, place / "mps"
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        settings = Settings(
            sharing=share(4) if sharing is None else sharing,
            mps=MpsSettings(**mps),
            device_plugin=DevicePluginSettings(mps_root=self.root),
        )
        self.live = LiveSettings(settings)
        self.gpus = SimulatedGpus(PROFILES[profile], clock=clock, deadline_seconds=5.0)
        self.gpus.set_holders({})
        self.book, self.places = Book(), places
        self.handle: Handle[Mps] = Handle(lambda: MpsRefused(NO_DAEMONS))
        self._worker = WorkerThread("files of a test")
        program = fake.program if fake is not None else program
        self.host: MpsHost = SimulatedMps() if program is None else self._make_host(program)
        self._generation = 0

    def _make_host(self, program: Path) -> HostMps:
        mps = self.live.now.mps
        settings = MpsHostSettings(
            find_root=lambda: Path("/"),
            program=program,
            start_timeout_seconds=mps.start_timeout_seconds,
            answer_timeout_seconds=mps.answer_timeout_seconds,
        )
        return HostMps(settings, self._worker)

    async def look(self) -> Inventory:
        """What the inventory component does, and the one that keeps the doors."""
        readout = await self.gpus.read_inventory()
        self._generation += 1
        inventory = Inventory(generation=self._generation, gpus=readout.gpus)
        self.bus.publish_state(inventory, source="inventory")
        doors = tuple(
            GpuAllocationMode(
                gpu=gpu.uuid,
                index=gpu.index,
                address=gpu.pci.address,
                door=AllocationMode.WHOLE,
                wanted=AllocationMode.WHOLE,
                reason="the default",
                is_open=True,
            )
            for gpu in readout.gpus
        )
        self.bus.publish_state(Offering(doors=doors), source="offering")
        return inventory

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """The component, until it is killed at the end of the block: nothing is said to it before."""
        self.drive(DriverPhase.READY)
        if self.bus.latest(AllocationTable) is None:
            self.hold()
        await self.look()
        async with anyio.create_task_group() as tasks:
            component = Mps(
                self.bus,
                self.conditions,
                self.clock,
                self.live,
                self.host,
                GpuAccess(self.gpus, self.places),
                self.book,
                self.handle,
            )
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    def drive(self, phase: DriverPhase) -> None:
        """The driver is so."""
        self.bus.publish_state(DriverState(phase=phase), source="driver")

    def hold(self, *devices: str) -> None:
        """Pods have these devices."""
        self.bus.publish_state(make_holdings(devices), source="allocations")

    def bind(self, *bindings: Binding) -> None:
        """Containers have these parts of GPUs."""
        self.bus.publish_state(FractionTable(bindings={one.number: one for one in bindings}), source="allocations")

    def configure(self, sharing: SharingSettings) -> None:
        """The configuration says so from now on."""
        before = self.live.now
        self.live.replace(Settings(sharing=sharing, mps=before.mps, device_plugin=before.device_plugin))
        self.bus.publish_fact(ConfigurationReloaded(changed=("sharing",)), source="control")

    @property
    def state(self) -> MpsState:
        """What is told."""
        latest = self.bus.latest(MpsState)
        return latest.value if latest is not None else MpsState()

    async def until(self, is_so: Callable[[MpsState], bool], seconds: float = 30.0) -> MpsState:
        """The state once it is so."""
        with anyio.fail_after(seconds), self.bus.watch(MpsState, client="until") as states:
            while not is_so(self.state):
                await anext(states)
        return self.state

    async def until_phase(self, phase: MpsPhase, seconds: float = 30.0) -> tuple[MpsDaemon, ...]:
        """The daemons once all of them stand so."""
        state = await self.until(
            lambda state: bool(state.daemons) and all(one.phase is phase for one in state.daemons), seconds
        )
        return state.daemons

    async def until_gone(self) -> None:
        """There is no daemon any more."""
        await self.until(lambda state: not state.daemons)

    async def until_clear(self, code: str) -> None:
        """A condition is not true any more."""
        with anyio.fail_after(10), self.bus.watch(ActiveConditions, client="until clear") as changes:
            while code in self.codes():
                await anext(changes)

    async def modes(self) -> list[ComputeMode]:
        """Of each GPU who may use it."""
        return [await self.gpus.compute_mode(gpu.uuid) for gpu in (await self.gpus.read_inventory()).gpus]

    async def uuids(self) -> list[GpuUuid]:
        """The GPUs."""
        return [gpu.uuid for gpu in (await self.gpus.read_inventory()).gpus]

    async def find(self, name: str) -> int | None:
        """The process of the daemon of this name."""
        return await self.host.find(plan_place(self.live.now, name))

    def codes(self) -> set[str]:
        """Conditions that are set."""
        return {condition.code for condition in self.conditions.all_set()}

    def facts(self, kind: type) -> Sequence[Any]:
        """What happened of this kind."""
        return [one.value for one in self.bus.history() if isinstance(one.value, kind)]

    def close(self) -> None:
        """End every daemon that is left, and the thread."""
        for pipes in self.root.glob("**/pipe"):
            while (pid := find_daemon(pipes)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._worker.close()


def client(fake: FakeMps, world: World, name: str) -> subprocess.Popen[str]:
    """A process that works through the daemon of this name; it is at work when this returns."""
    worker = fake.open_client({"CUDA_MPS_PIPE_DIRECTORY": str(world.root / name / "pipe")})
    assert worker.stdout is not None
    assert worker.stdout.readline()
    return worker


def close(worker: subprocess.Popen[str]) -> int:
    """Its exit status, once it has ended."""
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        pipe.close()
    return worker.wait(10)


def read_environment(pid: int) -> list[str]:
    """With what a process was started."""
    return sorted(Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0").decode().split("\0"))


def is_seen(memory: Path, pid: int) -> bool:
    """Whether what is in this directory is in the shared memory of a process, and not in everybody's."""
    (memory / "segment").touch()
    return Path(f"/proc/{pid}/root", "dev/shm/segment").exists() and not Path("/dev/shm/segment").exists()
