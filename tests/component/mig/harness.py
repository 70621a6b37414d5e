"""The component that cuts GPUs, over simulated ones: who sees them, who has them, and who asks, is played here."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from nodeagent.components.inventory.diff import diff_inventories
from nodeagent.components.mig.component import ClusterAccess, Mig, MigFiles, MigHandles
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.mig import MigSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.sealed_store import Stored
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cluster import NodeRequests
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import JournalUnavailable
from nodeagent.model.events import GpuSeenStale, MigChangeEnded
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Change, Step
from nodeagent.model.mig import MigState, PartitionRequest
from nodeagent.model.orders import APPLY_LAYOUT, LayoutCommand
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.ports import GpuAccess, PartitionMaking, ProcessPlaces
from nodeagent.rules.mig.layouts import LayoutsRead
from nodeagent_sim.gpus.profile import load_profile
from nodeagent_sim.gpus.source import SimulatedGpus
from tests.support.mig import partitions_of
from tests.support.virtual_time import FakeClock

OFF = partitions_of("h100-sxm5-80gb", enabled=False)
WHOLE = ["whole"]
SEVEN = ["1g.10gb"] * 7
BALANCED = ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]

PROFILES = {name: load_profile(name) for name in ("dgx-h100", "a100-80gb-mig", "a100-40gb")}
"""Read here, where files may be read."""


class Book:
    """The journal's part: remembers changes, or refuses to."""

    def __init__(self) -> None:
        self.under_way: dict[int, Change] = {}
        self.ended: list[str] = []
        self.breaks_after = 10**9
        self.is_known = self.settles = True
        self.kill_at = 0
        """The step, counted over all changes, at which the agent is killed."""
        self.kill: Callable[[], None] = self._steps_on
        self._steps = 0

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        self._maybe_fail()
        number = 1 + len(self.ended) + len(self.under_way)
        self.under_way[number] = Change(number=number, owner=owner, gpu=gpu, steps=(step,))
        await self._maybe_die()
        return number

    async def step_change(self, number: int, step: Step) -> None:
        self._maybe_fail()
        known = self.under_way[number]
        self.under_way[number] = Change(number=number, owner=known.owner, gpu=known.gpu, steps=(*known.steps, step))
        await self._maybe_die()

    async def settle_change(self, number: int, outcome: str) -> None:
        if not self.settles:
            raise JournalUnavailable("/state/journal", "no space left on device")
        self.ended.append(str(outcome))
        del self.under_way[number]

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        return tuple(one for one in self.under_way.values() if one.owner == owner) if self.is_known else None

    async def _maybe_die(self) -> None:
        self._steps += 1
        if self._steps == self.kill_at:
            self.kill()
            await anyio.sleep_forever()

    def _steps_on(self) -> None:
        """Nobody to be killed."""

    def _maybe_fail(self) -> None:
        self.breaks_after -= 1
        if self.breaks_after < 0:
            raise JournalUnavailable("/state/journal", "no space left on device")


class Store:
    """The sealed file, as far as the component sees it."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.trouble = self.boot = ""

    async def read(self) -> Stored:
        return Stored(body=self.body, boot_id=self.boot)

    async def write(self, body: bytes) -> str:
        if not self.trouble:
            self.body = body
        return self.trouble

    async def discard(self, reason: str) -> str:
        self.body = None
        return reason


def make_holdings(devices: Sequence[str]) -> AllocationTable:
    """Each of these devices is a pod's."""
    rows = tuple(
        Allocation(
            number=number,
            resource=ResourceName("nvidia.com/gpu"),
            devices=(DeviceId(device),),
            since_seconds=0.0,
            pod=PodIdentity(namespace="ns", name=f"train-{number}", uid=f"uid-{number}"),
            container="main",
        )
        for number, device in enumerate(devices)
    )
    return AllocationTable(allocations=rows)


class World:
    """Everything round the component, which may be started again and again."""

    def __init__(
        self, clock: FakeClock, profile: str = "dgx-h100", places: ProcessPlaces | None = None, **mig: Any
    ) -> None:
        self.clock = clock
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.live = LiveSettings(Settings(mig=MigSettings(manage=True, **mig)))
        self.gpus = SimulatedGpus(PROFILES[profile], clock=clock, deadline_seconds=5.0)
        self.gpus.set_holders({})
        self.book, self.store, self.orders = Book(), Store(), OrderHandlers()
        self.partitions: Handle[PartitionMaking] = Handle(APPLY_LAYOUT.refuse)
        self.file = LayoutsRead()
        self.places = places
        self.has_cluster = self.is_blind = False
        self.cluster: Any = None
        """The ports to an API server, where there is one."""
        self.hidden: set[int] = set()
        """GPUs that cannot be seen."""
        self._generation = 0

    def list_partitions(self) -> Mapping[str, PartitionRequest] | None:
        """The devices wanted by key, where the component makes single devices."""
        maker = self.partitions.value
        return maker.partitions() if maker is not None else None

    async def look(self) -> Inventory:
        """What the inventory component does: see the GPUs and tell of them, and of those that have come or gone."""
        readout, before = await self.gpus.read_inventory(), self.bus.latest(Inventory)
        self._generation += 1
        seen = tuple(gpu for gpu in readout.gpus if gpu.index not in self.hidden)
        inventory = Inventory(generation=self._generation, gpus=seen)
        self.bus.publish_state(inventory, source="inventory")
        for fact in diff_inventories(before.value if before is not None else None, inventory):
            self.bus.publish_fact(fact, source="inventory")
        return inventory

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """The component with its GPUs seen, and whatever it changes seen too."""
        await anyio.sleep(1)  # the simulated GPUs begin in the middle of work
        await self.look()
        async with anyio.create_task_group() as tasks:
            self.book.kill = tasks.cancel_scope.cancel
            tasks.start_soon(self._follow)
            component = Mig(
                self.bus,
                self.conditions,
                self.clock,
                self.live,
                GpuAccess(self.gpus, self.places),
                MigFiles(self.book, self.store, self._read_file),  # type: ignore[arg-type]  # as far as it is used
                MigHandles(self.orders, self.partitions),
                ClusterAccess(self.cluster, self.cluster, has_labels=self.has_cluster),
            )
            await tasks.start(lambda *, task_status: component.run(task_status=task_status))
            yield self
            tasks.cancel_scope.cancel()

    async def apply(self, layout: str) -> str:
        return await self.orders.give(APPLY_LAYOUT, LayoutCommand(layout=layout, who="me"))

    async def _read_file(self) -> LayoutsRead:
        return self.file

    async def _follow(self) -> None:
        with self.bus.listen(MigChangeEnded, GpuSeenStale, client="test") as ends:
            async for _ in ends:
                if not self.is_blind:
                    await self.look()

    def ask(self, layout: str) -> None:
        """The node's label says so."""
        self.bus.publish_state(NodeRequests(mig_config=layout), source="cluster")

    def hold(self, *devices: str) -> None:
        """Pods have these devices."""
        self.bus.publish_state(make_holdings(devices), source="allocations")

    def advertise(self, *devices: str) -> None:
        """The kubelet was told that these can be had."""
        listed = tuple(AdvertisedDevice(id=DeviceId(device), healthy=True) for device in devices)
        resource = AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=True, devices=listed)
        self.bus.publish_state(PluginState(resources=(resource,)), source="deviceplugin")

    @property
    def state(self) -> MigState:
        """What is told."""
        latest = self.bus.latest(MigState)
        return latest.value if latest is not None else MigState()

    async def until(self, is_so: Callable[[MigState], bool], seconds: float = 60.0) -> MigState:
        """The state once it is so."""
        with anyio.fail_after(seconds), self.bus.watch(MigState, client="until") as states:
            while not is_so(self.state):
                await anext(states)
        return self.state

    async def until_standing(self, standing: str) -> MigState:
        """The state once it stands so, with nothing under way."""
        return await self.until(lambda state: state.standing == standing and not state.changes)

    async def profiles(self) -> list[list[str]]:
        """Of each GPU what it is cut into; a GPU that is whole has `whole`."""
        gpus = (await self.gpus.read_inventory()).gpus
        return [sorted(d.profile for d in gpu.mig_devices) if gpu.mig_enabled else ["whole"] for gpu in gpus]

    def codes(self) -> set[str]:
        """Conditions that are set."""
        return {condition.code for condition in self.conditions.all_set()}

    def facts(self, kind: type) -> Sequence[Any]:
        """What happened of this kind."""
        return [one.value for one in self.bus.history() if isinstance(one.value, kind)]
