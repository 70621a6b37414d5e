"""The utilization to write for each container, from the use of all processes in one sample; pure."""

from collections.abc import Mapping

from nodeagent.components.fractions.decide import name_files
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement, PartTable
from nodeagent.model.parts import PartMeasure
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import ContainerUse, PartUsage
from nodeagent.rules.placement.space import CORES


def plan_measures(
    table: PartTable, usage: PartUsage, sample: NodeSample | None
) -> dict[str, tuple[PartMeasure | None, ...]]:
    """By folder name the measures of a container, in the order of its GPUs; `None` for a GPU of unknown use.

    Only containers under the vGPU library have measures: no other program reads the files.
    """
    if sample is None or sample.time_seconds != usage.time_seconds:
        return {}
    totals = _sum_use(sample)
    # Another number for each sample, also after a restart of the agent.
    number = int(sample.time_seconds * 1000) & 0xFFFFFFFF
    found: dict[str, tuple[PartMeasure | None, ...]] = {}
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


def _measure(use: ContainerUse, totals: Mapping[GpuUuid, int], number: int) -> tuple[PartMeasure | None, ...]:
    return tuple(
        None
        if part.cores_used is None or part.gpu not in totals
        else PartMeasure(number=number, own=part.cores_used, total=min(CORES, max(part.cores_used, totals[part.gpu])))
        for part in use.parts
    )
