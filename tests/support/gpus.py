"""Inventories for tests, made of as little as a test cares about."""

from collections.abc import Callable, Sequence

from nodeagent.model.gpu import Gpu, GpuPair, Inventory, Mig, MigAttributes, MigDevice, PathKind, PciIdentity
from nodeagent.model.ids import GpuUuid, MigUuid, PciAddress

MODEL = "NVIDIA H100 80GB HBM3"


def gpu_uuid(index: int) -> GpuUuid:
    return GpuUuid(f"GPU-{index:08x}-0000-0000-0000-000000000000")


def mig_uuid(gpu: int, index: int) -> MigUuid:
    return MigUuid(f"MIG-{gpu:08x}-{index:04x}-0000-0000-000000000000")


def make_gpu(
    index: int,
    *,
    name: str = MODEL,
    numa_node: int | None = None,
    mig: Sequence[str] | None = None,
    lost: str = "",
) -> Gpu:
    """A GPU; `mig` lists the profiles of its MIG devices, `None` means that MIG is off."""
    return Gpu(
        index=index,
        uuid=gpu_uuid(index),
        name=name,
        pci=PciIdentity(address=PciAddress(f"0000:{index + 0x10:02x}:00.0"), device_id=0x233010DE),
        minor=index,
        numa_node=numa_node,
        mig=None if mig is None else Mig(enabled=True, pending=True, devices=make_mig_devices(index, mig)),
        lost=lost,
    )


def make_mig_devices(gpu: int, profiles: Sequence[str]) -> tuple[MigDevice, ...]:
    return tuple(
        MigDevice(
            uuid=mig_uuid(gpu, index),
            parent=gpu_uuid(gpu),
            index=index,
            gpu_instance_id=index + 7,
            compute_instance_id=0,
            profile=profile,
            attributes=_attributes(profile),
        )
        for index, profile in enumerate(profiles)
    )


def _attributes(profile: str) -> MigAttributes:
    parts = profile.split(".")
    gpu_slices = int(next(part for part in parts if part.endswith("g")).removesuffix("g"))
    compute_slices = int(parts[0].removesuffix("c")) if parts[0].endswith("c") else gpu_slices
    return MigAttributes(
        multiprocessor_count=16 * compute_slices,
        gpu_instance_slice_count=gpu_slices,
        compute_instance_slice_count=compute_slices,
        memory_mib=9856 * gpu_slices,
    )


def make_inventory(gpus: Sequence[Gpu], paths: Callable[[int, int], tuple[PathKind, int]] | None = None) -> Inventory:
    """An inventory; `paths` says how two positions reach each other: the path, and how many links."""
    pairs = []
    if paths is not None:
        for right in range(len(gpus)):
            for left in range(right):
                path, links = paths(left, right)
                pairs.append(GpuPair(left=gpus[left].uuid, right=gpus[right].uuid, path=path, nvlink_count=links))
    return Inventory(generation=1, gpus=tuple(gpus), pairs=tuple(pairs))


def make_node(count: int = 8) -> Inventory:
    """A board with NVSwitch and two sockets."""
    half = count // 2
    return make_inventory(
        [make_gpu(index, numa_node=index // half if half else 0) for index in range(count)],
        lambda left, right: (PathKind.NODE if left // half == right // half else PathKind.SYSTEM, 18),
    )
