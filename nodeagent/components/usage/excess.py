"""The process to end of a container over the memory of its fraction; pure.

The driver's own count decides. Refuses to act on a single measurement, and on processes without a known pod.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.usage import ContainerUse, FractionUsage, FractionUse

Key = tuple[int, GpuUuid]


class Excess(NamedTuple):
    """A process to end."""

    use: ContainerUse
    part: FractionUse
    pid: int
    pod_uid: str
    memory_bytes: int
    """The process's own memory on the GPU."""


def find_excesses(
    usage: FractionUsage, sample: NodeSample, places: Mapping[int, ProcessPlace], seen: frozenset[Key]
) -> tuple[tuple[Excess, ...], frozenset[Key]]:
    """The processes to end now, the largest of each container and GPU, and the keys for the next measurement.

    `seen` are the keys over their memory by the measurement before.
    """
    memory = {(gpu.uuid, process.pid): process.memory_used_bytes for gpu in sample.gpus for process in gpu.processes}
    over: set[Key] = set()
    found: list[Excess] = []
    for use in usage.containers:
        for fraction in use.parts:
            if fraction.memory_used_bytes is None or fraction.memory_used_bytes <= fraction.memory_bytes:
                continue
            over.add((use.number, fraction.gpu))
            # Only a process with a known pod: a process without may be of any owner.
            pods = [pid for pid in fraction.processes if pid in places and places[pid].pod_uid]
            known = [(memory.get((fraction.gpu, pid)) or 0, pid) for pid in pods]
            if known and (use.number, fraction.gpu) in seen:
                most, pid = max(known)
                found.append(Excess(use, fraction, pid, places[pid].pod_uid, most))
    return tuple(found), frozenset(over)
