"""Follows the cluster's device classes, and says where one of them doubles a resource of this node's device plugin.

Owns the condition `resource-by-two-ways`. Refuses to hold up slices: classes that cannot be read are a warning in the
log, and are asked for again ever later.
"""

from contextlib import aclosing
from random import Random

import anyio

from nodeagent.components.slices.doubled import explain_doubled
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.slices import KubeDeviceClasses
from nodeagent.model.errors import NodeagentError
from nodeagent.model.plugin import PluginState
from nodeagent.model.slices import DeviceClass, PublishedSlices

CODE = "resource-by-two-ways"
RETRY = BackoffSettings(first_seconds=5.0, limit_seconds=600.0)
"""Where the right to read classes is missing, it is missing for long."""


class DeviceClasses:
    """The device classes as the watch tells of them, held against what the node offers."""

    name = "slices"

    def __init__(self, bus: Bus, conditions: Conditions, clock: Clock, api: KubeDeviceClasses, rng: Random) -> None:
        self._bus, self._conditions, self._clock, self._api, self._rng = bus, conditions, clock, api, rng
        self._classes: tuple[DeviceClass, ...] = ()
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self) -> None:
        """Follow and compare until cancelled."""
        states = self._bus.watch_all(PluginState, PublishedSlices, client=f"{self.name} classes")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._waker.follow, states, name="slices offers")
            tasks.start_soon(self._follow_forever, name="slices classes")
            while True:
                await self._waker.wait()
                plugin, slices = self._bus.read(PluginState), self._bus.read(PublishedSlices)
                self._conditions.replace(CODE, explain_doubled(self._classes, plugin, slices))

    async def _follow_forever(self) -> None:
        backoff = Backoff(RETRY, self._rng)
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(self._api.follow_classes()) as tables:
                    async for table in tables:
                        self._classes = tuple(table.values())
                        self._waker.wake()
            except NodeagentError as error:
                self._log.warning("device_classes_not_read", reason=str(error))
            await anyio.sleep(backoff.delay_after_failure(ran_seconds=self._clock.monotonic() - began))
