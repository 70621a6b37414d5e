"""The ports of the simulation: driver probe, GPU source and fault injector over one world.

Owns waiting: a hung call really waits until its deadline, and a change wakes every task waiting for a change.
Refuses physics and faults themselves: `world` and `faults` have both, as values.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec.structs import replace

from nodeagent.core.clock import Clock, SystemClock
from nodeagent.model.driver import DriverEvidence, LoadedModule
from nodeagent.model.errors import DriverMismatch, DriverReleased, DriverStuck, DriverUnavailable
from nodeagent.model.events import GpuEventReported
from nodeagent.model.gpu import ComputeMode, Gpu, GpuReadout
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.mig import NEWEST, GpuPartitions, Write, WriteKind
from nodeagent.model.ports import GpuEvent, PartitionSession, ProcessPlace
from nodeagent.model.repairs import ToolAnswer
from nodeagent.model.telemetry import NodeSample
from nodeagent_sim.gpus.containers import FractionWork
from nodeagent_sim.gpus.faults import apply_fault, list_faults, reset_gpus
from nodeagent_sim.gpus.partitions import apply_write, read_partitions
from nodeagent_sim.gpus.profile import Profile
from nodeagent_sim.gpus.readout import render_evidence, render_readout
from nodeagent_sim.gpus.sample import render_sample
from nodeagent_sim.gpus.world import World

DEADLINE_SECONDS = 5.0
EVENTS_KEPT = 256
"""A listener that falls further behind loses the oldest events, as in the driver's own queue."""


class SimulatedGpus:
    """A node's driver and GPUs, made up from a profile."""

    def __init__(
        self,
        profile: Profile,
        *,
        node_name: str = "simulated",
        seed: int = 0,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Clock | None = None,
        extras: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.profile, self._extras = profile, extras
        self._world = World(profile, node_name=node_name, seed=seed)
        self._deadline_seconds = deadline_seconds
        self._clock = clock or SystemClock()
        self._began_seconds = self._clock.monotonic()
        self._released = ""
        self._changed = anyio.Event()
        self._changes = 0
        self._changes_noticed = 0
        """Changes seen by the driver probe, so that no change between a probe and a wait is missed."""
        self._events: deque[tuple[int, GpuEvent]] = deque(maxlen=EVENTS_KEPT)
        self._events_reported = 0

    def set_holders(self, holders: Mapping[str, str] | None) -> None:
        """Set the devices that pods hold, by device UUID; `None` lets the simulation make up its own jobs."""
        self._describe_time()
        self._world.set_holders(holders)

    def set_works(self, works: tuple[FractionWork, ...]) -> None:
        """Set the containers at work on fractions of GPUs."""
        self._describe_time()
        self._world.set_works(works)

    def has_library(self, folder: str) -> bool:
        """Whether the library came up in the container with this folder of limits."""
        return self._world.crowd.has_library(folder)

    # ProcessPlaces

    async def read_places(self, pids: Sequence[int]) -> Mapping[int, ProcessPlace]:
        """The pods of simulated processes at work on fractions of GPUs."""
        places = self._world.find_places()
        return {pid: places[pid] for pid in pids if pid in places}

    # DriverProbe

    async def read_evidence(self) -> DriverEvidence:
        """Probe the simulated driver; a hung probe is evidence of a stuck driver."""
        self._changes_noticed = self._changes
        stuck = ""
        try:
            await self._pass("evidence")
        except DriverStuck as error:
            stuck = str(error)
        return render_evidence(self._world, stuck=stuck, released=self._released)

    async def wait_change(self) -> None:
        """Return at the next injected fault, release or resume, or when a hung driver comes back."""
        self._describe_time()
        if self._changes == self._changes_noticed:
            ends = [end for end in self._world.driver.hung_until.values() if end > self._world.now_seconds]
            with anyio.move_on_after(min(ends) - self._world.now_seconds if ends else None):
                await self._changed.wait()
        self._changes_noticed = self._changes

    # GpuSource

    async def read_inventory(self) -> GpuReadout:
        """Enumerate the simulated GPUs."""
        await self._ask("inventory", "enumerate GPUs")
        return render_readout(self._world)

    async def read_sample(self) -> NodeSample:
        """Read the simulated GPUs as they are now."""
        began_seconds, began = self._clock.wall(), self._clock.monotonic()
        await self._ask("sample", "read GPUs")
        return render_sample(
            self._world, began_seconds, took_seconds=self._clock.monotonic() - began, extras=self._extras()
        )

    def events(self) -> AsyncIterator[GpuEvent]:
        """Events injected from now on."""
        return self._follow_events(self._events_reported)

    async def release(self, reason: str) -> None:
        """Release the simulated driver."""
        self._released = reason or "on request"
        self._wake()

    async def resume(self) -> None:
        """Resume the use of the simulated driver."""
        self._released = ""
        self._wake()

    # GpuPartitioning

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[PartitionSession]:
        """A session; free of cost here."""
        yield SimulatedPartitions(self)

    async def read_partitions(self, gpu: GpuUuid) -> GpuPartitions:
        """The partitions of the simulated GPU."""
        await self._ask("partition", "read partitions")
        return read_partitions(self._world.find_gpu(gpu))

    async def write_partition(self, gpu: GpuUuid, write: Write) -> int:
        """Change the partitions of the simulated GPU, and report the change as the driver does."""
        await self._ask("partition", write.describe())
        made = apply_write(self._world, self._world.find_gpu(gpu), write)
        self._report(GpuEventReported(gpu=gpu, kind="mig_layout"))
        self._wake()
        return made

    async def compute_mode(self, gpu: GpuUuid, mode: ComputeMode | None = None) -> ComputeMode:
        """The compute mode of the simulated GPU; with a mode given, the earlier mode."""
        await self._ask("partition", "the compute mode")
        state = self._world.find_gpu(gpu)
        before = state.compute_mode
        state.compute_mode = before if mode is None else mode
        return before

    async def set_time_slice(self, gpu: GpuUuid, number: int) -> None:
        """Set the time slice of the simulated GPU; no reading shows the time slice."""
        await self._ask("partition", "set the time slice")
        self._world.find_gpu(gpu).time_slice = number

    # DriverTool

    async def reset(self, addresses: Sequence[PciAddress], *, is_bus: bool, timeout_seconds: float) -> ToolAnswer:
        """Reset simulated GPUs, function and bus alike; refused as by nvidia-smi."""
        del is_bus
        self._describe_time()
        with anyio.move_on_after(timeout_seconds) as scope:
            await self._wait_unhung("reset", is_agents=False)
        self._describe_time()
        if scope.cancelled_caught:
            return ToolAnswer(code=None, said=f"no end within {timeout_seconds:g} s")
        answer, events = reset_gpus(self._world, [self._world.find_gpu(one) for one in addresses])
        for event in events:
            self._report(event)
        self._wake()
        return answer

    async def set_persistence(self, address: PciAddress, *, is_on: bool) -> ToolAnswer:
        """Set the persistence mode of a simulated GPU."""
        await anyio.lowlevel.checkpoint()
        self._world.find_gpu(address).persistence_mode = is_on
        return ToolAnswer(code=0)

    async def set_power_limit(self, address: PciAddress, milliwatts: int) -> ToolAnswer:
        """Set nothing: a simulated GPU keeps its power limit over a reset."""
        await anyio.lowlevel.checkpoint()
        return ToolAnswer(code=0, said=f"the power limit of {address} stays; {milliwatts} mW were asked for")

    # DriverModules

    async def load(self, modules: Sequence[str]) -> str:
        """Load the simulated module in the version of the library, where none is loaded."""
        del modules
        self._describe_time()
        if not self._world.driver.loaded:
            self._world.load_driver(self._world.driver.library_version)
            self._wake()
        await anyio.lowlevel.checkpoint()
        return ""

    async def read_loaded(self) -> tuple[LoadedModule, ...]:
        """The simulated modules, held by the jobs on the GPUs."""
        self._describe_time()
        await anyio.lowlevel.checkpoint()
        if not self._world.driver.loaded:
            return ()
        jobs = sum(worker.pid > 0 for gpu in self._world.gpus for worker in gpu.workers)
        return (
            LoadedModule(name="nvidia_uvm", references=0),
            LoadedModule(name="nvidia", references=jobs + 1, holders=("nvidia_uvm",)),
        )

    async def unload(self, modules: Sequence[str]) -> ToolAnswer:
        """Unload the simulated modules, which no job may hold."""
        self._describe_time()
        await anyio.lowlevel.checkpoint()
        if any(worker.pid for gpu in self._world.gpus for worker in gpu.workers):
            return ToolAnswer(code=1, said=f"Module {modules[-1]} is in use.")
        self._world.unload_driver()
        self._wake()
        return ToolAnswer(code=0)

    # FaultInjector

    @property
    def known_faults(self) -> tuple[str, ...]:
        """Each fault with its arguments."""
        return list_faults()

    async def inject(self, fault: str, arguments: Sequence[str]) -> str:
        """Apply a fault to the world, and wake all tasks waiting for a change."""
        self._describe_time()
        outcome = apply_fault(self._world, fault, arguments)
        for event in outcome.events:
            self._report(event)
        self._wake()
        return outcome.sentence

    def _report(self, event: GpuEvent) -> None:
        self._events.append((self._events_reported, event))
        self._events_reported += 1

    async def _follow_events(self, first: int) -> AsyncIterator[GpuEvent]:
        while True:
            self._refuse("watch events")
            fresh = [(number, event) for number, event in self._events if number >= first]
            for number, event in fresh:
                first = number + 1
                yield event
            if not fresh:
                await self._changed.wait()

    async def _ask(self, call: str, purpose: str) -> None:
        """One call into the driver: refused, delayed, or answered.

        Raises:
            DriverError: The driver cannot answer.
        """
        self._refuse(purpose)
        await self._pass(call)
        self._refuse(purpose)

    def _refuse(self, purpose: str) -> None:
        driver = self._world.driver
        if self._released:
            raise DriverReleased(self._released)
        if not driver.loaded:
            raise DriverUnavailable(purpose, "the driver is not loaded (NVML error 9)")
        if driver.library_version != driver.module_version:
            raise DriverMismatch(driver.library_version, driver.module_version)

    async def _pass(self, call: str) -> None:
        """Take as long as the driver takes.

        Raises:
            DriverStuck: The call took longer than the deadline.
        """
        self._describe_time()
        with anyio.move_on_after(self._deadline_seconds) as scope:
            await self._wait_unhung(call)
            if self._world.driver.slow_seconds and not self._released:
                await anyio.sleep(self._world.driver.slow_seconds)
        if scope.cancelled_caught:
            self._describe_time()
            raise DriverStuck(f"the call {call}", self._deadline_seconds)
        self._describe_time()

    async def _wait_unhung(self, call: str, *, is_agents: bool = True) -> None:
        """Wait out a hang; a release ends the agent's own calls alone."""
        while not (is_agents and self._released) and (left := self._world.find_hang_end(call) - self._read_time()) > 0:
            with anyio.move_on_after(left):
                await self._changed.wait()

    def _read_time(self) -> float:
        return self._clock.monotonic() - self._began_seconds

    def _describe_time(self) -> None:
        self._world.advance(self._read_time())

    def _wake(self) -> None:
        self._changes += 1
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class SimulatedPartitions:
    """The port `PartitionSession`: remembers the instance created last."""

    def __init__(self, gpus: SimulatedGpus) -> None:
        self._gpus, self._newest = gpus, NEWEST

    async def read(self, gpu: Gpu) -> GpuPartitions:
        """The partitions of the simulated GPU."""
        return await self._gpus.read_partitions(gpu.uuid)

    async def write(self, gpu: Gpu, write: Write) -> int:
        """Change the partitions of the simulated GPU."""
        if write.instance == NEWEST:
            write = replace(write, instance=self._newest)
        made = await self._gpus.write_partition(gpu.uuid, write)
        if write.kind is WriteKind.CREATE:
            self._newest = made
        return made

    async def read_compute_mode(self, gpu: Gpu) -> ComputeMode:
        """The compute mode of the simulated GPU."""
        return await self._gpus.compute_mode(gpu.uuid)

    async def set_compute_mode(self, gpu: Gpu, mode: ComputeMode) -> None:
        """Set the compute mode of the simulated GPU."""
        await self._gpus.compute_mode(gpu.uuid, mode)

    async def set_time_slice(self, gpu: Gpu, number: int) -> None:
        """Set the time slice of the simulated GPU."""
        await self._gpus.set_time_slice(gpu.uuid, number)
