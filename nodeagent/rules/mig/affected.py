"""Who is in the way of a change: those who have what it takes away, and nobody else.

Owns which devices a change takes away, and how the allocations and processes on them are told.
Refuses to count those who stay as they are: a container on another instance, or on another GPU, is not asked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.journal import PartTable, PreparedClaim
from nodeagent.model.mig import Write, WriteKind
from nodeagent.model.telemetry import ProcessSample
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.offer.doors import list_part_holders

_NAMED: Final = 3
"""Those that a line of text names one by one."""
_WHOLE: Final = frozenset({WriteKind.MODE_ON, WriteKind.MODE_OFF, WriteKind.RESET})


class InTheWay(Value, frozen=True):
    """One that has, or uses, what a change takes away."""

    name: str
    """`ns/pod (container)`, `allocation 3`, `process 123`."""
    pod: PodIdentity | None = None
    pid: int | None = None


def list_affected(gpu: Gpu, writes: Iterable[Write]) -> tuple[DeviceUuid, ...]:
    """The devices that these calls take away: a MIG device with its instance, all of the GPU with its mode."""
    steps = tuple(writes)
    if any(step.kind in _WHOLE for step in steps):
        return (gpu.uuid, *(device.uuid for device in gpu.mig_devices))
    instances = {step.instance for step in steps if step.kind is WriteKind.DESTROY}
    computes = {(step.instance, step.compute) for step in steps if step.kind is WriteKind.DESTROY_COMPUTE}
    return tuple(
        device.uuid
        for device in gpu.mig_devices
        if device.gpu_instance_id in instances or (device.gpu_instance_id, device.compute_instance_id) in computes
    )


def list_busy(gpu: Gpu, allocations: Iterable[Allocation], processes: Iterable[ProcessSample]) -> frozenset[int]:
    """The GPU instances that somebody has or uses."""
    held = {find_uuid(device) for one in allocations for device in one.devices}
    used = {process.gpu_instance_id for process in processes if process.gpu_instance_id is not None}
    return frozenset(used | {device.gpu_instance_id for device in gpu.mig_devices if device.uuid in held})


def find_in_the_way(
    gpu: Gpu,
    affected: Collection[DeviceUuid],
    allocations: Iterable[Allocation],
    processes: Iterable[ProcessSample],
    pods: Mapping[int, str],
    parts: PartTable | None = None,
) -> tuple[InTheWay, ...]:
    """Those who have one of these devices, and processes on them that belong to nobody who was told already.

    Args:
        gpu: the GPU that changes.
        affected: what of it is taken away.
        allocations: all that are alive.
        processes: those on this GPU.
        pods: the pod of a process by its id, as UID; those of the host are not in it.
        parts: who has parts of GPUs.
    """
    of_parts = list_part_holders(gpu.uuid, parts) if parts is not None and gpu.uuid in affected else ()
    holders = (
        *_list_holders(affected, allocations),
        *(InTheWay(name=one.describe(), pod=one.pod) for one in of_parts),
    )
    known = {holder.pod.uid for holder in holders if holder.pod is not None and holder.pod.uid}
    by_instance = {(device.gpu_instance_id, device.compute_instance_id): device.uuid for device in gpu.mig_devices}
    strangers = [
        InTheWay(name=f"process {process.pid}", pid=process.pid)
        for process in processes
        if _find_device(process, by_instance, gpu) in affected and pods.get(process.pid, "") not in known
    ]
    return (*holders, *strangers)


def list_claimants(affected: Collection[DeviceUuid], claims: Iterable[PreparedClaim]) -> tuple[InTheWay, ...]:
    """The claims that have one of these devices as it is; one that is made for a claim goes with that claim."""
    return tuple(
        InTheWay(name=f"claim {claim.namespace}/{claim.name}")
        for claim in sorted(claims, key=lambda one: one.uid)
        if any(device.uuid in affected and not device.is_made for device in claim.devices)
    )


def _list_holders(affected: Collection[DeviceUuid], allocations: Iterable[Allocation]) -> Iterable[InTheWay]:
    for one in sorted(allocations, key=lambda each: each.number):
        if any(find_uuid(device) in affected for device in one.devices):
            pod = one.pod
            name = f"allocation {one.number}" if pod is None else f"{pod.namespace}/{pod.name} ({one.container})"
            yield InTheWay(name=name, pod=pod)


def _find_device(process: ProcessSample, by_instance: Mapping[tuple[int, int], DeviceUuid], gpu: Gpu) -> DeviceUuid:
    if process.gpu_instance_id is None or process.compute_instance_id is None:
        return gpu.uuid
    return by_instance.get((process.gpu_instance_id, process.compute_instance_id), gpu.uuid)


def describe_in_the_way(found: Sequence[InTheWay]) -> str:
    """The first few by name, the others counted."""
    names = list(dict.fromkeys(one.name for one in found))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
