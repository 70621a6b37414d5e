"""A simulated node with driver and inventory, round the health component; on virtual time."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from nodeagent.components.driver.component import DRIVER_GATE, Driver, DriverHost
from nodeagent.components.health.component import Health
from nodeagent.components.health.verdict_store import VERDICTS_VERSION
from nodeagent.components.inventory.component import InventoryComponent
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.orders import CLEAR_GPU, ClearCommand
from nodeagent.model.values import Value
from nodeagent_sim.gpus.profile import list_profiles, load_profile
from nodeagent_sim.gpus.source import SimulatedGpus
from tests.support.files.gpu_store import open_gpu_store
from tests.support.virtual_time import FakeClock

HEALTHY, SUSPECT, UNHEALTHY, UNKNOWN = Verdict.HEALTHY, Verdict.SUSPECT, Verdict.UNHEALTHY, Verdict.UNKNOWN

PROFILES = {name: load_profile(name) for name in list_profiles()}
"""Read here, because reading files would block the loop of a test."""


class WatchedStore(SealedStore):
    """The real store, which notes what the world knew at each write, and fails when told to."""

    def __init__(self, path: Path, bus: Bus) -> None:
        super().__init__(SealedFile(path, "nodeagent-verdicts", VERDICTS_VERSION))
        self._bus = bus
        self.broken = ""
        self.writes: list[tuple[bytes, HealthReport | None]] = []

    async def write(self, body: bytes) -> str:
        told = self._bus.latest(HealthReport)
        self.writes.append((body, told.value if told is not None else None))
        return self.broken or await super().write(body)


class KernelLogPipe:
    """Stands for /dev/kmsg: one record a write."""

    def __init__(self, path: Path) -> None:
        self.path, self._sequence = path, 0
        os.mkfifo(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def say(self, text: str, *, at: float = 1e6, facility: int = 0) -> None:
        self._sequence += 1
        os.write(self._descriptor, f"{facility * 8 + 3},{self._sequence},{int(at * 1e6)},-;{text}\n".encode())

    def skip(self, records: int) -> None:
        """The kernel overwrote so many."""
        self._sequence += records

    def close(self) -> None:
        os.close(self._descriptor)


class Node:
    """Everything of one agent that health has to do with."""

    def __init__(
        self,
        state_dir: Path,
        profile: str = "dgx-h100",
        kernel_log: Path | None = None,
        *,
        sample_seconds: float = 1.0,
        fact_queue_limit: int = 20_000,
        **health: Any,
    ) -> None:
        self.state_dir = state_dir
        self.clock = FakeClock()
        self.bus = Bus(self.clock, fact_queue_limit=fact_queue_limit)
        self.conditions = Conditions(self.bus, self.clock, CATALOGUE)
        self.gates = Gates([DRIVER_GATE], clock=self.clock)
        self.gpus = SimulatedGpus(PROFILES[profile], clock=self.clock, deadline_seconds=1.0)
        settings = Settings()
        inventory = replace(settings.inventory, sample_seconds=sample_seconds)
        self.live = LiveSettings(replace(settings, health=replace(settings.health, **health), inventory=inventory))
        self.orders = OrderHandlers()
        self.store = WatchedStore(state_dir / "verdicts.json", self.bus)
        self.kernel_log = kernel_log

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Node"]:
        driver = Driver(self.bus, self.gates, self.conditions, DriverHost(self.gpus), lambda: self.live.now.driver)
        inventory = InventoryComponent(
            self.bus,
            self.conditions,
            self.clock,
            self.gpus,
            self.live,
            open_gpu_store(self.state_dir),
            self.orders,
        )
        health = Health(
            self.bus, self.conditions, self.clock, self.live, self.store, self.orders, kernel_log=self.kernel_log
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: driver.run(task_status=task_status))
            await tasks.start(lambda *, task_status: inventory.run(task_status=task_status))
            await tasks.start(lambda *, task_status: health.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    async def clear(self, gpu: str, reason: str, who: str) -> str:
        return await self.orders.give(CLEAR_GPU, ClearCommand(gpu=gpu, reason=reason, who=who))

    async def break_it(self, fault: str, *arguments: str) -> None:
        await self.gpus.inject(fault, arguments)

    @property
    def report(self) -> HealthReport:
        envelope = self.bus.latest(HealthReport)
        assert envelope is not None
        return envelope.value

    @property
    def verdicts(self) -> list[Verdict]:
        return [device.verdict for device in self.report.devices]

    def device(self, index: int) -> DeviceHealth:
        return self.report.devices[index]

    def details(self, code: str) -> list[str]:
        return [condition.detail for condition in self.conditions.all_set() if condition.code == code]

    async def wait_verdict(self, index: int, verdict: Verdict, within_seconds: float = 60.0) -> float:
        """How long it took until the device had this verdict."""
        return await self.wait_report(lambda report: report.devices[index].verdict is verdict, within_seconds)

    async def wait_report(self, is_it: Callable[[HealthReport], bool], within_seconds: float = 60.0) -> float:
        """How long it took until there was such a report."""
        began = anyio.current_time()
        with self.bus.watch(HealthReport, client="test") as reports, anyio.fail_after(within_seconds):
            async for envelope in reports:
                if is_it(envelope.value):
                    break
        return anyio.current_time() - began

    def told(self, fact: type[Value]) -> list[Any]:
        """The facts of this class, in order, as far as the history goes."""
        return [envelope for envelope in self.bus.history() if type(envelope.value) is fact]
