"""What is used of GPUs that are given in parts by programs that were given nothing of them; pure.

Such a program is another plugin's, of a pod that was bound by hand, or of the host. Its memory is nobody's to promise.
Refuses to guess: a process that is not seen, or that may be of a container of which the pod is not known yet, counts
for nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PartTable
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import NodeSample

_STEP_BYTES = 256 << 20
"""Small changes are not worth telling every scheduler of."""
_NAME_MOST = 15
"""Characters of its name that the kernel keeps of a process."""


def find_foreign(
    gpus: Iterable[Gpu],
    table: PartTable,
    sample: NodeSample,
    places: Mapping[int, ProcessPlace],
    ignored: Collection[str],
) -> dict[GpuUuid, int]:
    """By GPU the bytes that are used so; a GPU is in it as soon as there is such a process.

    Args:
        gpus: those that are given in parts.
        table: who was given what.
        sample: what runs on them.
        places: whose a process is.
        ignored: names of processes of the host that may use GPUs beside everybody.
    """
    tenants: dict[GpuUuid, set[str]] = {}
    for binding in table.bindings.values():
        for part in binding.parts:
            tenants.setdefault(part.gpu, set()).add(binding.pod.uid)
    left_alone = {name[:_NAME_MOST] for name in ignored}
    ours = {gpu.uuid for gpu in gpus}
    found: dict[GpuUuid, int] = {}
    for gpu in sample.gpus:
        known = tenants.get(gpu.uuid, set())
        if gpu.uuid not in ours or "" in known:
            continue
        for process in gpu.processes:
            place = places.get(process.pid)
            if place is None or place.pod_uid in known or (not place.pod_uid and place.name in left_alone):
                continue
            found[gpu.uuid] = found.get(gpu.uuid, 0) + (process.memory_used_bytes or 0)
    return {gpu: -(-used // _STEP_BYTES) * _STEP_BYTES for gpu, used in found.items()}
