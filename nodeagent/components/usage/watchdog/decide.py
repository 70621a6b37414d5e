"""Which process ends because its container has more of a GPU's memory than its part; pure.

The driver's own count is the judge. Refuses to act on one measurement, and on what it cannot tell one container from
another by.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import ContainerUse, PartUsage, PartUse

Key = tuple[int, GpuUuid]


class Excess(NamedTuple):
    """A process that is to end."""

    use: ContainerUse
    part: PartUse
    pid: int
    pod_uid: str
    memory_bytes: int
    """What it has of that GPU itself."""


def find_excesses(
    usage: PartUsage, sample: NodeSample, places: Mapping[int, ProcessPlace], seen: frozenset[Key]
) -> tuple[tuple[Excess, ...], frozenset[Key]]:
    """Those that end now, the largest of each container and GPU, and what to remember until the next measurement.

    Args:
        usage: what everybody uses.
        sample: of which that was made.
        places: whose each process is.
        seen: who was over by the measurement before.
    """
    memory = {(gpu.uuid, process.pid): process.memory_used_bytes for gpu in sample.gpus for process in gpu.processes}
    over: set[Key] = set()
    found: list[Excess] = []
    for use in usage.containers:
        for part in use.parts:
            if part.memory_used_bytes is None or part.memory_used_bytes <= part.memory_bytes:
                continue
            over.add((use.number, part.gpu))
            # Only a process that is seen to be of a pod: one that is not may be anybody's.
            pods = [pid for pid in part.processes if pid in places and places[pid].pod_uid]
            known = [(memory.get((part.gpu, pid)) or 0, pid) for pid in pods]
            if known and (use.number, part.gpu) in seen:
                most, pid = max(known)
                found.append(Excess(use, part, pid, places[pid].pod_uid, most))
    return tuple(found), frozenset(over)
