"""Writes the GPUs' utilization for containers with each measurement: the vGPU library reckons with the numbers.

Refuses to hold up containers: where a file cannot be written, the library goes on by its own estimates.
"""

from collections.abc import Mapping

from nodeagent.components.fractions.decide import name_files
from nodeagent.components.fractions.reconcile_task import LockedJournal
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import MeasuredUtilization
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement, FractionTable
from nodeagent.model.ports import FractionFolders
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import ContainerUse, FractionUsage
from nodeagent.rules.placement.space import CORES


class UtilizationFiles:
    """A task of the component `fractions`."""

    def __init__(self, bus: Bus, live: LiveSettings, journal: LockedJournal, folders: FractionFolders) -> None:
        self._bus, self._live, self._journal, self._folders = bus, live, journal, folders
        self._problem = ""
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Write each measurement once, until cancelled."""
        with self._bus.watch(FractionUsage, client="fractions measured") as usages:
            async for usage in usages:
                if self._live.now.fractions.limit_compute:
                    await self._tell(usage.value)

    async def _tell(self, usage: FractionUsage) -> None:
        measures = plan_measures(self._journal.table, usage, self._bus.read(NodeSample))
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


def plan_measures(
    table: FractionTable, usage: FractionUsage, sample: NodeSample | None
) -> dict[str, tuple[MeasuredUtilization | None, ...]]:
    """By folder name the measures of a container, in the order of its GPUs; `None` for a GPU of unknown use.

    Only containers under the vGPU library have measures: no other program reads the files.
    """
    if sample is None or sample.time_seconds != usage.time_seconds:
        return {}
    totals = _sum_use(sample)
    # Another number for each sample, also after a restart of the agent.
    number = int(sample.time_seconds * 1000) & 0xFFFFFFFF
    found: dict[str, tuple[MeasuredUtilization | None, ...]] = {}
    for use in usage.containers:
        binding = table.bindings.get(use.number)
        if binding is None or use.enforcement is not Enforcement.LIBRARY:
            continue
        measures = _measure(use, totals, number)
        if any(measures):
            found[name_files(binding)] = measures
    return found


def _sum_use(sample: NodeSample) -> Mapping[GpuUuid, int]:
    """The use of all processes by GPU, counted like the container's own; without GPUs of incomplete counts."""
    counts = {gpu.uuid: [process.sm_utilization_percent for process in gpu.processes] for gpu in sample.gpus}
    return {gpu: sum(each for each in used if each is not None) for gpu, used in counts.items() if None not in used}


def _measure(use: ContainerUse, totals: Mapping[GpuUuid, int], number: int) -> tuple[MeasuredUtilization | None, ...]:
    return tuple(
        None
        if fraction.cores_used is None or fraction.gpu not in totals
        else MeasuredUtilization(
            number=number, own=fraction.cores_used, total=min(CORES, max(fraction.cores_used, totals[fraction.gpu]))
        )
        for fraction in use.parts
    )
