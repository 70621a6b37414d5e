"""Writes the GPUs' utilization for containers with each measurement: the vGPU library reckons with the numbers.

Refuses to hold up containers: where a file cannot be written, the library goes on by its own estimates.
"""

from nodeagent.components.fractions.measuring.decide import plan_measures
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import NodeagentError
from nodeagent.model.journal import PartTable
from nodeagent.model.ports import PartFolders, PartLedger
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import PartUsage


class Measuring:
    """A task of the component `fractions`."""

    def __init__(self, bus: Bus, live: LiveSettings, ledger: PartLedger, folders: PartFolders) -> None:
        """`ledger` has the bindings, `folders` the containers' files."""
        self._bus, self._live, self._ledger, self._folders = bus, live, ledger, folders
        self._problem = ""
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Write each measurement once, until cancelled."""
        with self._bus.watch(PartUsage, client="fractions measured") as usages:
            async for usage in usages:
                if self._live.now.fractions.limit_compute:
                    await self._tell(usage.value)

    async def _tell(self, usage: PartUsage) -> None:
        sample = self._bus.latest(NodeSample)
        table = self._ledger.parts() or PartTable()
        measures = plan_measures(table, usage, sample.value if sample is not None else None)
        if not measures:
            return
        problem = ""
        try:
            await self._folders.measure(measures)
        except NodeagentError as error:
            problem = str(error)
        if problem and problem != self._problem:
            self._log.warning("measure_not_told", reason=problem)
        self._problem = problem
