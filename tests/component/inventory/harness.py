"""A source of GPUs that answers as the test says, and the component with everything round it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from nodeagent.components.inventory.component import InventoryComponent
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DriverError
from nodeagent.model.gpu import GpuReadout, Inventory
from nodeagent.model.orders import FORGET_GPU, ForgetCommand
from nodeagent.model.ports import GpuEvent
from nodeagent.model.telemetry import DriverAccess, NodeSample
from tests.support.files.gpu_store import open_gpu_store
from tests.support.samples import make_gpu, make_readout
from tests.support.virtual_time import FakeClock


class ScriptedGpus:
    """A source that answers what the test put there."""

    def __init__(self) -> None:
        self.readout: GpuReadout | DriverError = make_readout(make_gpu(0), make_gpu(1))
        self.sampling: DriverError | None = None
        self.hang: anyio.Event | None = None
        self.access: DriverAccess | None = None
        self.readings = self.samples = 0
        self.event_sender, self._events = anyio.create_memory_object_stream[GpuEvent | DriverError](16)

    async def read_inventory(self) -> GpuReadout:
        self.readings += 1
        if isinstance(self.readout, DriverError):
            raise self.readout
        return self.readout

    async def read_sample(self) -> NodeSample:
        self.samples += 1
        if self.hang is not None:
            await self.hang.wait()
        if self.sampling is not None:
            raise self.sampling
        return NodeSample(time_seconds=float(self.samples), access=self.access)

    async def events(self) -> AsyncIterator[GpuEvent]:
        while True:
            event = await self._events.receive()
            if isinstance(event, DriverError):
                raise event
            yield event

    async def release(self, reason: str) -> None:
        raise AssertionError("the inventory never releases")

    async def resume(self) -> None:
        raise AssertionError("the inventory never resumes")

    def close(self) -> None:
        self.event_sender.close()
        self._events.close()


class Stage:
    def __init__(self, clock: FakeClock, state_dir: Path) -> None:
        self.clock, self.state_dir, self.orders = clock, state_dir, OrderHandlers()
        self.bus = Bus(clock)
        self.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings())
        self.gpus = ScriptedGpus()
        self.started = anyio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        store = open_gpu_store(self.state_dir)
        component = InventoryComponent(self.bus, self.conditions, self.clock, self.gpus, self.live, store, self.orders)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, component)
            yield
            tasks.cancel_scope.cancel()
        self.gpus.close()

    async def _run(self, component: InventoryComponent) -> None:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            self.started.set()

    async def forget(self, gpu: str) -> str:
        return await self.orders.give(FORGET_GPU, ForgetCommand(gpu=gpu, who="me"))

    def inventory(self) -> Inventory | None:
        envelope = self.bus.latest(Inventory)
        return envelope.value if envelope is not None else None

    def details(self, code: str) -> list[str]:
        return [condition.detail for condition in self.conditions.all_set() if condition.code == code]

    def codes(self) -> list[str]:
        return [condition.code for condition in self.conditions.all_set()]
