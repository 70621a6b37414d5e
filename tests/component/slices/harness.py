"""The slices component between a bus and an API server that a test fills."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel

from nodeagent.components.slices.component import SliceNode, Slices
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.host.devices.pcie_roots import HostPcieRoots
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import Verdict
from nodeagent.model.ids import PciAddress
from nodeagent.model.slices import PublishedSlices, SliceContent, SliceDevice, SlicePool
from tests.fakes.slices import FakeDeviceClasses, FakeSliceApi, SliceRefused
from tests.support.gpus import make_gpu, make_inventory
from tests.support.slices import DRIVER, make_doors, make_report
from tests.support.virtual_time import FakeClock

TWO = (make_gpu(0), make_gpu(1))
LOST = ("lost", Verdict.UNHEALTHY)


class Roots(HostPcieRoots):
    """The kernel's word on PCIe trees."""

    def __init__(self) -> None:
        self.asked = 0
        self.trouble: SliceRefused | None = None

    async def read_roots(self, addresses: Collection[PciAddress]) -> Mapping[PciAddress, str]:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return dict.fromkeys(addresses, "pci0000:00")


class World:
    def __init__(self, gpus: Sequence[Gpu] = TWO, **claims: Any) -> None:
        clock = FakeClock()
        self.gpus = tuple(gpus)
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings(claims=ClaimsSettings(enabled=True, **claims)))
        self.api, self.classes, self.roots = FakeSliceApi(), FakeDeviceClasses(), Roots()
        self.pool = SlicePool(driver=DRIVER, node="node-1")
        self.noted: list[tuple[SliceContent, ...]] = []

    def tell(self, found: Mapping[str, Any] | None = None) -> None:
        inventory = make_inventory(self.gpus)
        self.bus.publish_state(inventory, source="inventory")
        self.bus.publish_state(make_report(inventory, found), source="health")
        self.bus.publish_state(make_doors(self.gpus), source="offering")

    def know_node(self) -> None:
        self.bus.publish_state(ClusterNode(name="node-1", uid="uid-of-node"), source="cluster")

    @asynccontextmanager
    async def running(
        self, wait_judged: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    ) -> AsyncIterator["World"]:
        component = Slices(
            self.bus,
            self.conditions,
            FakeClock(),
            self.live,
            SliceNode(self.api, self.pool, self.classes, self.roots),
            wait_judged=wait_judged,
            note_contents=self.noted.append,
            rng=Random(1),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def published(self) -> AsyncIterator["World"]:
        """Running, with all that it knows in the API server."""
        self.know_node()
        self.tell()
        async with self.running():
            await self.settle()
            self.api.writes.clear()
            yield self

    async def settle(self, seconds: float = 0.1) -> None:
        """Until nothing more is to be done, in no more than this."""
        await anyio.sleep(seconds)

    @property
    def devices(self) -> dict[str, SliceDevice]:
        contents = [one.content for one in self.api.stored.values()]
        return {one.name: one for content in contents if content is not None for one in content.devices}

    def taints(self) -> dict[str, list[tuple[str, str]]]:
        return {name: [(each.key, each.effect) for each in one.taints] for name, one in self.devices.items()}

    @property
    def summary(self) -> PublishedSlices:
        envelope = self.bus.latest(PublishedSlices)
        assert envelope is not None
        return envelope.value

    def active(self) -> set[str]:
        return {one.code for one in self.conditions.active()}
