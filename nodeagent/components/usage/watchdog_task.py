"""Ends the largest process of a container over the memory of its fraction for two measurements.

Off unless configured. Refuses to end a process whose number belongs to another pod by then.
"""

from collections.abc import Mapping

from nodeagent.components.usage.excess import Excess, Key, find_excesses
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import FractionProcessEnded
from nodeagent.model.ports import ProcessEnding, ProcessPlace
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import FractionUsage


class Watchdog:
    """A helper of the component `usage`."""

    def __init__(self, bus: Bus, live: LiveSettings, processes: ProcessEnding) -> None:
        """`processes` ends a process."""
        self._bus, self._live, self._processes = bus, live, processes
        self._over = frozenset[Key]()
        self._judged_seconds = 0.0
        self._log = get_logger(component="usage")

    async def look(self, usage: FractionUsage, sample: NodeSample, places: Mapping[int, ProcessPlace]) -> None:
        """Judge one measurement; a repeated measurement is ignored."""
        if not self._live.now.fractions.kill_over_memory:
            self._over = frozenset()
            return
        if sample.time_seconds == self._judged_seconds:
            return
        self._judged_seconds = sample.time_seconds
        found, self._over = find_excesses(usage, sample, places, self._over)
        for each in found:
            await self._end(each)

    async def _end(self, excess: Excess) -> None:
        try:
            is_ended = await self._processes.end(excess.pid, excess.pod_uid)
        except NodeagentError as error:
            self._log.warning("process_not_ended", pid=excess.pid, error=str(error))
            return
        if not is_ended:
            return
        fact = FractionProcessEnded(
            number=excess.use.number,
            pod=excess.use.pod,
            container=excess.use.container,
            gpu=excess.part.gpu,
            pid=excess.pid,
            memory_bytes=excess.memory_bytes,
            reason=f"the container used {excess.part.describe_memory()}",
        )
        self._bus.publish_fact(fact, source="usage")
        self._log.warning("process_ended", pid=excess.pid, pod=excess.use.pod.describe(), reason=fact.reason)
