"""The holders in the way of a MIG change: allocations, processes and claims on the devices taken away, and no others.

Owns the list of devices that a change takes away, and the matching of allocations and processes with them.
Refuses to count unaffected holders: a container on another instance, or on another GPU, is not asked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid
from nodeagent.model.journal import FractionTable, PreparedClaim
from nodeagent.model.mig import Write, WriteKind
from nodeagent.model.telemetry import ProcessSample
from nodeagent.model.values import Value
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.offer.allocation_modes import list_fraction_holders

_NAMED: Final = 3
"""The number of holders named one by one in a line of text."""
_WHOLE: Final = frozenset({WriteKind.MODE_ON, WriteKind.MODE_OFF, WriteKind.RESET})


class InTheWay(Value, frozen=True):
    """A container, claim or process with a device that the change takes away."""

    name: str
    """`ns/pod (container)`, `allocation 3`, `process 123`."""
    pod: PodIdentity | None = None
    pid: int | None = None


def list_affected(gpu: Gpu, writes: Iterable[Write]) -> tuple[DeviceUuid, ...]:
    """The devices taken away by the calls: a MIG device with its instance, all of the GPU with the mode."""
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
    """The GPU instances held by an allocation or used by a process."""
    held = {find_uuid(device) for one in allocations for device in one.devices}
    used = {process.gpu_instance_id for process in processes if process.gpu_instance_id is not None}
    return frozenset(used | {device.gpu_instance_id for device in gpu.mig_devices if device.uuid in held})


def find_in_the_way(
    gpu: Gpu,
    affected: Collection[DeviceUuid],
    allocations: Iterable[Allocation],
    processes: Iterable[ProcessSample],
    pods: Mapping[int, str],
    parts: FractionTable | None = None,
) -> tuple[InTheWay, ...]:
    """The holders of the affected devices, and the processes on them apart from pods already listed.

    `processes` are all on this GPU; `pods` has the pod's UID by process id, without processes of the host.
    """
    of_parts = list_fraction_holders(gpu.uuid, parts) if parts is not None and gpu.uuid in affected else ()
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
    """The claims with an affected device; a device made for a claim goes with the claim and does not count."""
    return tuple(
        InTheWay(name=f"claim {claim.describe()}")
        for claim in sorted(claims, key=lambda one: one.uid)
        if any(device.uuid in affected and not device.is_made for device in claim.devices)
    )


def _list_holders(affected: Collection[DeviceUuid], allocations: Iterable[Allocation]) -> Iterable[InTheWay]:
    for one in sorted(allocations, key=lambda each: each.number):
        if any(find_uuid(device) in affected for device in one.devices):
            yield InTheWay(name=one.describe_holder(), pod=one.pod)


def _find_device(process: ProcessSample, by_instance: Mapping[tuple[int, int], DeviceUuid], gpu: Gpu) -> DeviceUuid:
    if process.gpu_instance_id is None or process.compute_instance_id is None:
        return gpu.uuid
    return by_instance.get((process.gpu_instance_id, process.compute_instance_id), gpu.uuid)


def describe_in_the_way(found: Sequence[InTheWay]) -> str:
    """The first few by name, the others counted."""
    names = list(dict.fromkeys(one.name for one in found))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
