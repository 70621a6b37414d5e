"""Joins what is known of each GPU: identity, sample, health, holders; pure."""

from nodeagent.components.web.records import GpuRecord, GpusRecord
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import parse_device_id
from nodeagent.model.telemetry import NodeSample


def join_gpus(
    inventory: Inventory,
    sample: NodeSample | None,
    health: HealthReport | None,
    table: AllocationTable | None,
    *,
    now_seconds: float,
) -> GpusRecord:
    """One record per GPU of the inventory; what has not been read yet is missing from it."""
    return GpusRecord(
        generation=inventory.generation,
        gpus=tuple(_join_gpu(gpu, sample, health, table, now_seconds) for gpu in inventory.gpus),
        pairs=inventory.pairs,
        switches=inventory.switches,
        missing=inventory.missing,
    )


def _join_gpu(
    gpu: Gpu,
    sample: NodeSample | None,
    health: HealthReport | None,
    table: AllocationTable | None,
    now_seconds: float,
) -> GpuRecord:
    newest = next((one for one in sample.gpus if one.uuid == gpu.uuid), None) if sample is not None else None
    age = max(0.0, now_seconds - sample.time_seconds) if sample is not None and newest is not None else None
    verdicts = tuple(device for device in health.devices if device.gpu == gpu.uuid) if health is not None else ()
    return GpuRecord(
        gpu=gpu,
        sample=newest,
        sample_age_seconds=age,
        health=verdicts,
        allocations=_find_allocations(gpu, table),
    )


def _find_allocations(gpu: Gpu, table: AllocationTable | None) -> tuple[Allocation, ...]:
    if table is None:
        return ()
    own = {gpu.uuid, *(device.uuid for device in gpu.mig_devices)}
    return tuple(
        allocation
        for allocation in table.allocations
        if any(parse_device_id(device)[0] in own for device in allocation.devices)
    )


def find_gpu_record(records: GpusRecord, name: str) -> GpuRecord | None:
    """By UUID, MIG UUID, PCI address, or index."""
    for record in records.gpus:
        gpu = record.gpu
        names = {gpu.uuid, gpu.pci.address, str(gpu.index), *(device.uuid for device in gpu.mig_devices)}
        if name in names:
            return record
    return None
