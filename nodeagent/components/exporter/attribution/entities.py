"""The devices with series: whole GPUs, and the GPU instances of GPUs in MIG mode; pure."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeagent.components.exporter.catalogue.field import Entity
from nodeagent.components.exporter.series.rates import NO_RATES, Rates
from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.ids import GpuUuid
from nodeagent.model.telemetry import GpuSample, MigSample, NodeSample


def list_boards(inventory: Inventory, sample: NodeSample, rates: Mapping[GpuUuid, Rates]) -> list[Entity]:
    """Every known and sampled GPU, as a whole."""
    samples = {gpu.uuid: gpu for gpu in sample.gpus}
    return [
        Entity(gpu, samples[gpu.uuid], samples[gpu.uuid], rates.get(gpu.uuid, NO_RATES), None, (gpu.uuid,))
        for gpu in inventory.gpus
        if gpu.uuid in samples
    ]


def list_devices(boards: Iterable[Entity]) -> list[Entity]:
    """The GPU instances of a GPU in MIG mode, or the GPU itself without instances."""
    devices: list[Entity] = []
    for board in boards:
        devices.extend(_list_instances(board) or [board])
    return devices


def _list_instances(board: Entity) -> list[Entity]:
    instances: dict[int, list[MigDevice]] = {}
    for device in board.gpu.mig_devices:
        instances.setdefault(device.gpu_instance_id, []).append(device)
    shares: dict[str, MigSample] = {share.uuid: share for share in board.board.mig}
    return [_make_instance(board, devices, shares) for devices in instances.values()]


def _make_instance(board: Entity, devices: list[MigDevice], shares: Mapping[str, MigSample]) -> Entity:
    """Compute instances of one GPU instance share memory and counters, so the GPU instance is the device."""
    first = devices[0]
    found = [shares[device.uuid] for device in devices if device.uuid in shares]
    share = MigSample(
        uuid=first.uuid, gpu_instance_id=first.gpu_instance_id, compute_instance_id=first.compute_instance_id
    )
    if found:
        share = replace(found[0], processes=tuple(process for one in found for process in one.processes))
    return Entity(board.gpu, board.board, share, board.rates, first, tuple(device.uuid for device in devices))


def is_partitioned(gpu: Gpu) -> bool:
    """Whether series are written for the GPU's instances."""
    return bool(gpu.mig_devices)


def find_lost(samples: Iterable[GpuSample]) -> dict[GpuUuid, str]:
    """GPUs without an answer, with the reason."""
    return {sample.uuid: sample.lost for sample in samples if sample.lost}
