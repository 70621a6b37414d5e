"""Small, complete model values for tests; each builder takes only what the test is about."""

from collections.abc import Iterable

from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.gpu import Gpu, GpuReadout, Inventory, Mig, MigAttributes, MigDevice, MissingGpu, PciIdentity
from nodeagent.model.ids import DeviceId, GpuUuid, MigUuid, PciAddress, ResourceName


def make_uuid(index: int) -> GpuUuid:
    """A UUID of the right form that shows its index."""
    return GpuUuid(f"GPU-00000000-0000-0000-0000-{index:012x}")


def make_address(index: int) -> PciAddress:
    """A PCI address of the right form that shows its index."""
    return PciAddress(f"0000:{index + 16:02x}:00.0")


def make_gpu(index: int = 0, *, lost: str = "", mig: Mig | None = None, name: str = "NVIDIA H100 80GB HBM3") -> Gpu:
    """One healthy GPU unless told otherwise."""
    return Gpu(
        index=index,
        uuid=make_uuid(index),
        name=name,
        pci=PciIdentity(address=make_address(index), device_id=0x233010DE),
        minor=index,
        numa_node=index // 4,
        memory_total_bytes=81559 * 1024 * 1024,
        compute_capability=(9, 0),
        mig=mig,
        lost=lost,
    )


def make_mig(index: int, count: int) -> Mig:
    """MIG switched on with `count` devices of the smallest shape."""
    devices = tuple(
        MigDevice(
            uuid=MigUuid(f"MIG-00000000-0000-0000-{index:04x}-{number:012x}"),
            parent=make_uuid(index),
            index=number,
            gpu_instance_id=number + 7,
            compute_instance_id=0,
            profile="1g.10gb",
            attributes=MigAttributes(
                multiprocessor_count=16, gpu_instance_slice_count=1, compute_instance_slice_count=1, memory_mib=9856
            ),
        )
        for number in range(count)
    )
    return Mig(enabled=True, pending=True, devices=devices, devices_max=7)


def make_inventory(count: int = 2, *, generation: int = 1) -> Inventory:
    """A node of equal GPUs."""
    return Inventory(generation=generation, gpus=tuple(make_gpu(index) for index in range(count)))


def make_readout(*gpus: Gpu, missing: tuple[MissingGpu, ...] = ()) -> GpuReadout:
    """An enumeration that found these GPUs."""
    return GpuReadout(gpus=gpus, missing=missing)


def hold_each(devices: Iterable[str], *, since_seconds: float) -> AllocationTable:
    return AllocationTable(
        allocations=tuple(
            Allocation(
                number=number,
                resource=ResourceName("nvidia.com/gpu"),
                devices=(DeviceId(uuid),),
                since_seconds=since_seconds,
                pod=PodIdentity(namespace="ml", name=f"train-{number}"),
                container="main",
            )
            for number, uuid in enumerate(devices)
        )
    )
