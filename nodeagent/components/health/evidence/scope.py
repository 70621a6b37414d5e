"""The scope of an event: a whole GPU, or exactly the MIG devices in the event.

A verdict about a device holds for every replica; a verdict about a GPU holds for all MIG devices of the GPU.
"""

from nodeagent.components.health.evidence.xids import Scope
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import DeviceUuid


def find_hit(
    gpu: Gpu, scope: Scope, gpu_instance_id: int | None, compute_instance_id: int | None
) -> tuple[DeviceUuid, ...]:
    """The devices that an event marks; the GPU itself where no such MIG instance exists."""
    if scope is Scope.GPU or gpu_instance_id is None:
        return (gpu.uuid,)
    named = tuple(
        device.uuid
        for device in gpu.mig_devices
        if device.gpu_instance_id == gpu_instance_id and compute_instance_id in {None, device.compute_instance_id}
    )
    return named or (gpu.uuid,)
