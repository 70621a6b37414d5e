"""The journal of allocations and its component, with a disk and a kubelet round it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_format import parse_journal
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Ledger, Node, replay
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.conditions import CATALOGUE
from tests.fakes.journal_store import FakeKubelet, FakeKubeletPods, FakeStore
from tests.support.allocations import GPU, device_ids, holding, listing
from tests.support.virtual_time import FakeClock

NODE = Node("machine", "boot")


class World:
    """The journal and its surroundings; the component may be started again and again."""

    def __init__(self, clock: FakeClock, settings: Settings | None = None) -> None:
        self.clock = clock
        self.store, self.kubelet, self.pods = FakeStore(), FakeKubelet(), FakeKubeletPods()
        self.live = LiveSettings(settings or Settings())
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.journal = Journal(
            self.bus,
            self.conditions,
            clock,
            self.live,
            self.kubelet,  # type: ignore[arg-type]  # as far as it is used
            open_store=lambda: self.store,  # type: ignore[arg-type,return-value]  # likewise
            read_node=lambda: NODE,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Allocations]:
        keeper = Allocations(
            self.bus,
            self.conditions,
            self.clock,
            self.live,
            self.journal,
            pods=self.pods,  # type: ignore[arg-type]  # as far as it is used
            rng=Random(1),
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda task_status: keeper.run(task_status=task_status))
            yield keeper
            tasks.cancel_scope.cancel()

    def published(self) -> dict[str, str]:
        """Device to pod, `-` where the pod is not known, with `!` where it is forgotten."""
        envelope = self.bus.latest(AllocationTable)
        assert envelope is not None
        return {
            device.removeprefix("GPU-"): (allocation.pod.name if allocation.pod else "-")
            + ("!" if allocation.forgotten else "")
            for allocation in envelope.value.allocations
            for device in allocation.devices
        }

    def facts(self, *kinds: type) -> list[Any]:
        return [envelope.value for envelope in self.bus.history() if isinstance(envelope.value, kinds)]

    def set_conditions(self) -> set[str]:
        return {condition.code for condition in self.conditions.all_set()}

    def durable(self) -> Ledger:
        parsed = parse_journal(self.store.current or b"")
        assert not parsed.damage
        return replay(parsed.records, 1000)

    def durable_devices(self) -> list[str]:
        return [device.removeprefix("GPU-") for entry in self.durable().entries.values() for device in entry.devices]


async def told() -> None:
    """Return when everybody has been told of what was granted: that takes a turn of the loop, and no time."""
    await anyio.lowlevel.checkpoint()


async def held_by_an_earlier_run(world: World) -> None:
    """A pod holds a device, the kubelet restarts and has lost its memory."""
    await world.journal.record(GPU, device_ids("a"))
    world.kubelet.listing = listing(holding("train", "a"))
    await anyio.sleep(11)
    world.kubelet.run_name, world.kubelet.run_since_seconds = "second", world.clock.wall()
    world.kubelet.listing = listing(pods=["train"])
