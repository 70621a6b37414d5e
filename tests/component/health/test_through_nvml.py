"""Health judged through the real NVML client, its worker process and a library with NVML's ABI; on real time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec.structs import replace

from nodeagent.components.health.component import Health
from nodeagent.components.health.verdict_store import VERDICTS_VERSION
from nodeagent.components.inventory.component import InventoryComponent
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.edge.nvml.agent.asker import NvmlSettings
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.health import HealthReport, Verdict
from tests.component.edge_nvml.harness import PATIENT, STRICT, running_gpus
from tests.fakes.nvml.control import FakeNvml
from tests.support.files.gpu_store import open_gpu_store
from tests.support.waiting import wait_until

XID = 0x8
RECOVERY_ACTION = 0x8000
HEALTHY, UNHEALTHY, UNKNOWN = Verdict.HEALTHY, Verdict.UNHEALTHY, Verdict.UNKNOWN


class Verdicts:
    """The verdicts of the node, as they are told."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def of(self, index: int) -> Verdict:
        report = self._bus.latest(HealthReport)
        return report.value.devices[index].verdict if report is not None else UNKNOWN

    async def wait(self, index: int, verdict: Verdict) -> None:
        """Until the device has this verdict, however slow the machine is."""
        await wait_until(lambda: self.of(index) is verdict)

    def others(self, index: int) -> set[Verdict]:
        report = self._bus.latest(HealthReport)
        assert report is not None
        return {device.verdict for place, device in enumerate(report.value.devices) if place != index}


@asynccontextmanager
async def judging(fake: FakeNvml, state_dir: Path, base: NvmlSettings = PATIENT) -> AsyncIterator[Verdicts]:
    """Inventory and health over the fake library, once all GPUs are healthy and watched."""
    settings = Settings()
    live = LiveSettings(
        replace(
            settings,
            inventory=replace(settings.inventory, sample_seconds=0.1, rescan_seconds=1.0),
            health=replace(settings.health, poll_seconds=0.2),
        )
    )
    clock = SystemClock()
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    bus.publish_state(DriverState(phase=DriverPhase.READY, driver_version="570.172.08"), source="test")
    store = SealedStore(SealedFile(state_dir / "verdicts.json", "nodeagent-verdicts", VERDICTS_VERSION))
    async with running_gpus(fake, base) as gpus, anyio.create_task_group() as tasks:
        inventory = InventoryComponent(bus, conditions, clock, gpus, live, open_gpu_store(state_dir), OrderHandlers())
        health = Health(bus, conditions, clock, live, store, OrderHandlers())
        await tasks.start(lambda *, task_status: inventory.run(task_status=task_status))
        await tasks.start(lambda *, task_status: health.run(task_status=task_status))
        verdicts = Verdicts(bus)
        for index in range(8):
            await verdicts.wait(index, HEALTHY)
        await wait_until(lambda: all(fake.calls("nvmlDeviceRegisterEvents", gpu=index) for index in range(8)))
        yield verdicts
        tasks.cancel_scope.cancel()


async def test_xid_and_recovery_action_come_and_go(fake: FakeNvml, tmp_path: Path) -> None:
    """From the library's event queue to the verdict, and back once the driver wants nothing any more."""
    async with judging(fake, tmp_path) as verdicts:
        fake.gpu(3).recovery_action = 1
        fake.push_event(3, XID, 119)
        fake.push_event(3, RECOVERY_ACTION, 1)
        await verdicts.wait(3, UNHEALTHY)
        assert verdicts.others(3) == {HEALTHY}
        fake.gpu(3).recovery_action = 0
        await verdicts.wait(3, HEALTHY)


async def test_lost_gpu_is_out_until_it_is_back(fake: FakeNvml, tmp_path: Path) -> None:
    """Without any event: the levels say it, and the others keep working."""
    async with judging(fake, tmp_path) as verdicts:
        fake.lose(5)
        await verdicts.wait(5, UNHEALTHY)
        assert verdicts.others(5) == {HEALTHY}
        fake.restore(5)
        await verdicts.wait(5, HEALTHY)


async def test_hung_gpu_turns_unknown_alone(fake: FakeNvml, tmp_path: Path) -> None:
    """A call that does not come back says nothing of the hardware, and nothing of the other seven."""
    async with judging(fake, tmp_path, STRICT) as verdicts:
        fake.hang_gpu(2)
        await verdicts.wait(2, UNKNOWN)
        assert UNHEALTHY not in verdicts.others(2)
        fake.clear()
        for index in range(8):
            await verdicts.wait(index, HEALTHY)
