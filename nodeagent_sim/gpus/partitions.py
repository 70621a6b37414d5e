"""The simulated driver's partitioning of a GPU: rules of placement, refusals, and processes in the way.

Owns the changes of each call, and NVML's reason for each refusal.
Refuses waiting: `source` owns the length of a call.
"""

from itertools import count
from typing import Final

from nodeagent.model.errors import PartitionRefused
from nodeagent.model.mig import ComputeInstance, GpuInstance, GpuPartitions, Write, WriteKind
from nodeagent_sim.gpus.gpu_state import GpuState
from nodeagent_sim.gpus.load import Phase, Tenant
from nodeagent_sim.gpus.mig_geometry import GEOMETRIES, MigShape, PlacedInstance, list_shapes
from nodeagent_sim.gpus.readout import list_profiles
from nodeagent_sim.gpus.world import AMPERE, World

_ON_DEMAND: Final = "the driver reports an unknown error (NVML code 999)"
_IN_USE: Final = "the GPU is in use (NVML code 19)"
_NO_ROOM: Final = "out of a critical resource other than memory (NVML code 23)"
_NOT_FOUND: Final = "not found (NVML code 6)"
_NOT_SUPPORTED: Final = "not supported by this GPU (NVML code 3)"
_PARTS: Final = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""By the slices of a GPU instance: possible slices of its compute instances."""


def read_partitions(gpu: GpuState) -> GpuPartitions:
    """All partitions of a GPU, as the driver lists them."""
    enabled = gpu.mig_layout is not None
    instances = [
        GpuInstance(
            id=number,
            profile_id=placed.shape.shape.profile_id,
            start=placed.start,
            size=placed.shape.shape.size,
            computes=tuple(
                ComputeInstance(id=tenant.compute_instance_id, slices=tenant.compute_slices)
                for tenant in _list_tenants(gpu, number)
            ),
        )
        for number, placed in sorted(gpu.instances.items())
    ]
    return GpuPartitions(
        enabled=enabled,
        pending=enabled if gpu.mig_pending is None else gpu.mig_pending,
        instances=tuple(instances),
        profiles=list_profiles(gpu.seat.model),
        memory_bytes=gpu.seat.model.total_bytes,
    )


def apply_write(world: World, gpu: GpuState, write: Write) -> int:
    """Make one call; the id of the created instance, or 0.

    Raises:
        PartitionRefused: The driver refuses the call; nothing changed.
    """
    left = world.driver.refused_writes.get(write.kind, 0)
    if left:
        world.driver.refused_writes[write.kind] = left - 1
        raise PartitionRefused(write.describe(), _ON_DEMAND)
    if gpu.seat.model.mig is None:
        raise PartitionRefused(write.describe(), _NOT_SUPPORTED)
    return _Call(world, gpu, write).make()


class _Call:
    """One call on one GPU."""

    def __init__(self, world: World, gpu: GpuState, write: Write) -> None:
        self.world, self.gpu, self.write = world, gpu, write

    def make(self) -> int:
        match self.write.kind:
            case WriteKind.MODE_ON | WriteKind.MODE_OFF:
                return self.switch(on=self.write.kind is WriteKind.MODE_ON)
            case WriteKind.RESET:
                return self.reset()
            case WriteKind.CREATE:
                return self.create()
            case WriteKind.CREATE_COMPUTE:
                return self.create_compute()
            case WriteKind.DESTROY:
                return self.destroy()
            case WriteKind.DESTROY_COMPUTE:
                return self.destroy_compute()

    def refuse(self, reason: str, *, in_use: bool = False) -> PartitionRefused:
        return PartitionRefused(self.write.describe(), reason, in_use=in_use)

    def switch(self, *, on: bool) -> int:
        """Switch MIG mode: since Hopper at once on an unused GPU; on older GPUs after a reset."""
        gpu = self.gpu
        if gpu.instances and not on:
            raise self.refuse(_IN_USE, in_use=True)
        is_on = gpu.mig_layout is not None
        gpu.mig_pending = on if on is not is_on else None
        if on is not is_on and gpu.seat.model.compute_capability[0] > AMPERE and not _is_used(gpu.tenants):
            self.set_mode(on=on)
        return 0

    def reset(self) -> int:
        gpu = self.gpu
        if _is_used(gpu.tenants):
            raise self.refuse(_IN_USE, in_use=True)
        on = gpu.mig_layout is not None if gpu.mig_pending is None else gpu.mig_pending
        gpu.reset()
        self.set_mode(on=on)
        return 0

    def set_mode(self, *, on: bool) -> None:
        self.gpu.layout_number += 1
        self.gpu.mig_layout = () if on else None
        self.gpu.mig_pending = None
        self.gpu.instances = {}
        self.gpu.tenants = [] if on else [self.world.make_tenant_of_whole(self.gpu)]

    def create(self) -> int:
        gpu, shapes = self.gpu, {one.shape.profile_id: one for one in list_shapes(self.gpu.seat.model)}
        shape = shapes.get(self.write.profile_id)
        if gpu.mig_layout is None or shape is None:
            raise self.refuse(_NOT_SUPPORTED)
        if not self.has_room(shape, self.write.start):
            raise self.refuse(_NO_ROOM)
        number = next(number for number in count(1) if number not in gpu.instances)
        gpu.instances[number] = PlacedInstance(shape=shape, start=self.write.start, gpu_instance_id=number)
        self.note_layout()
        return number

    def has_room(self, shape: MigShape, start: int) -> bool:
        gpu = self.gpu
        assert gpu.seat.model.mig is not None
        slots = {slot for one in gpu.instances.values() for slot in range(one.start, one.start + one.shape.shape.size)}
        slices = sum(one.shape.shape.slices for one in gpu.instances.values()) + shape.shape.slices
        alike = sum(one.shape.name == shape.name for one in gpu.instances.values())
        return (
            start in shape.shape.starts
            and not slots & set(range(start, start + shape.shape.size))
            and slices <= GEOMETRIES[gpu.seat.model.mig.geometry].slices
            and alike < shape.shape.instances
        )

    def find_instance(self) -> PlacedInstance:
        placed = self.gpu.instances.get(self.write.instance)
        if placed is None:
            raise self.refuse(_NOT_FOUND)
        return placed

    def create_compute(self) -> int:
        placed, slices = self.find_instance(), self.write.slices
        there = _list_tenants(self.gpu, placed.gpu_instance_id)
        room = placed.shape.shape.slices - sum(one.compute_slices for one in there)
        if slices > room or slices not in _PARTS[placed.shape.shape.slices]:
            raise self.refuse(_NO_ROOM)
        taken = {one.compute_instance_id for one in there}
        number = next(number for number in count() if number not in taken)
        self.gpu.layout_number += 1
        self.gpu.tenants.append(self.world.make_tenant(self.gpu, placed, number, slices))
        return number

    def destroy(self) -> int:
        placed = self.find_instance()
        if _list_tenants(self.gpu, placed.gpu_instance_id):
            raise self.refuse(_IN_USE, in_use=True)
        del self.gpu.instances[placed.gpu_instance_id]
        self.note_layout()
        return 0

    def destroy_compute(self) -> int:
        placed = self.find_instance()
        there = _list_tenants(self.gpu, placed.gpu_instance_id)
        found = [one for one in there if one.compute_instance_id == self.write.compute]
        if not found:
            raise self.refuse(_NOT_FOUND)
        if _is_used(found):
            raise self.refuse(_IN_USE, in_use=True)
        self.gpu.tenants.remove(found[0])
        return 0

    def note_layout(self) -> None:
        self.gpu.mig_layout = tuple(one.shape.name for one in self.gpu.instances.values())


def _list_tenants(gpu: GpuState, instance: int) -> list[Tenant]:
    return [one for one in gpu.tenants if one.instance is not None and one.instance.gpu_instance_id == instance]


def _is_used(tenants: list[Tenant]) -> bool:
    return any(tenant.phase is not Phase.IDLE for tenant in tenants)
