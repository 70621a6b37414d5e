"""The progress and the end of changes, published; and the states by which layouts are judged, read.

What the code that changes GPUs needs of the bus and of the conditions. Owns the changes under way.
"""

from collections.abc import Callable
from typing import Final

import anyio
from msgspec.structs import replace

from nodeagent.components.mig.carry import End
from nodeagent.components.mig.request import LayoutRequest
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cluster import NodeRequests
from nodeagent.model.driver import DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import GpuSeenStale, MigChangeEnded
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.plugin import PluginState
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.mig.change import Outcome

HALF: Final = "mig-half-way"
REBOOT: Final = "mig-reboot-needed"
WATCHED = (Inventory, DriverState, NodeRequests, AllocationTable, FractionTable, ReadyClaims, NodeSample, PluginState)


class MigReporter:
    """Between the code that changes GPUs and the rest of the agent."""

    name = "mig"

    def __init__(self, bus: Bus, conditions: Conditions, is_requested: Callable[[LayoutRequest], bool]) -> None:
        """`is_requested` says whether a request is still in force."""
        self._bus, self._conditions, self.is_requested = bus, conditions, is_requested
        self.read = bus.read
        self._changes: dict[GpuUuid, GpuChange] = {}
        self.waker, self._log = Waker(), get_logger(component=self.name)

    def publish(self, state: MigState) -> None:
        """Publish the standing of the layout, with the changes under way."""
        self._bus.publish_state(replace(state, changes=tuple(self._changes.values())), source=self.name)

    def find_gpu(self, uuid: GpuUuid) -> Gpu:
        """The GPU as seen now.

        Raises:
            ControlRefused: The GPU is not on this node any more.
        """
        inventory = self.read(Inventory)
        if inventory is None or (gpu := inventory.find_gpu(uuid)) is None:
            raise ControlRefused(f"{uuid} is not on this node any more")
        return gpu

    def show(self, change: GpuChange, *, is_over: bool = False) -> None:
        """Publish the progress of a GPU's change; once over, the GPU's devices are offered as they are."""
        self._changes[change.gpu] = change
        if is_over:
            del self._changes[change.gpu]
        self.publish(self.read(MigState) or MigState())

    def publish_end(self, gpu: Gpu, end: End, *, layout: str = "", device: str = "") -> None:
        """Publish the end of a change for a layout or of a single device, and have the GPU polled anew."""
        fact = MigChangeEnded(gpu=gpu.uuid, layout=layout, outcome=end.outcome, detail=end.detail, device=device)
        self._bus.publish_fact(fact, source=self.name)
        self._log.info(
            "mig_change_ended", gpu=gpu.uuid, what=layout or device, outcome=str(end.outcome), detail=end.detail
        )
        for code, outcome in ((HALF, Outcome.HALF), (REBOOT, Outcome.REBOOT)):
            if end.outcome is outcome:
                self.set_condition(code, gpu.uuid, f"GPU {gpu.index}: {end.detail}")
            else:
                self.clear_condition(code, gpu.uuid)

    def publish_stale(self, gpu: Gpu) -> None:
        """Have a GPU polled anew that was cut by another program since the last poll."""
        self._bus.publish_fact(GpuSeenStale(gpu=gpu.uuid), source=self.name)

    def set_condition(self, code: str, gpu: GpuUuid, detail: str) -> None:
        """Set a condition of a GPU."""
        self._conditions.set(code, key=gpu, detail=detail)

    def clear_condition(self, code: str, gpu: GpuUuid) -> None:
        """Clear a condition of a GPU."""
        self._conditions.clear(code, key=gpu)

    async def wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Whether the condition comes true in time; checked at each change of a state by which GPUs are judged."""
        with self._bus.watch_all(*WATCHED, client=f"{self.name} waiting") as states, anyio.move_on_after(seconds):
            while not is_so():
                await anext(states)
        return is_so()

    async def wait_news(self, seconds: float | None = None) -> None:
        """Return when a state by which layouts are judged has changed, or after so many seconds."""
        with anyio.move_on_after(seconds):
            await self.waker.wait()
