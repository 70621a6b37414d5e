"""Compares one enumeration with the previous inventory.

Owns the generation number and the rule that a GPU off the bus stays visible as lost: people must find the lost GPU in
every list, and its pods must not find another GPU under the same name.
"""

from msgspec.structs import replace

from nodeagent.components.inventory.expected import Expectation
from nodeagent.components.inventory.gpu_store import find_missed
from nodeagent.model.events import GpuAppeared, GpuVanished, MigLayoutChanged
from nodeagent.model.gpu import Gpu, GpuReadout, Inventory, StoredGpu

NOBODY = Expectation()
InventoryFact = GpuAppeared | GpuVanished | MigLayoutChanged


def decide_inventory(
    before: Inventory | None,
    readout: GpuReadout,
    *,
    known: tuple[StoredGpu, ...] = (),
    expected: Expectation = NOBODY,
    now_seconds: float = 0.0,
) -> Inventory:
    """The inventory after a readout; the very same object while GPUs are unchanged.

    `known` are present and former GPUs, from the store; `now_seconds` is the Unix time of the readout.
    """
    gpus = _keep_lost(before, readout)
    missed = find_missed(known, gpus, readout.missing, expected.count, now_seconds)
    generation = before.generation + 1 if before is not None else 1
    after = Inventory(
        generation=generation,
        gpus=gpus,
        pairs=readout.pairs,
        switches=readout.switches,
        missing=readout.missing,
        vanished=missed.vanished,
        shortfall=missed.shortfall,
        expected_by=expected.by if missed.shortfall else "",
    )
    if before is not None and replace(after, generation=before.generation) == before:
        return before
    return after


def _keep_lost(before: Inventory | None, readout: GpuReadout) -> tuple[Gpu, ...]:
    """The readout's GPUs, and known GPUs whose card is still in the slot but no longer listed."""
    if before is None:
        return readout.gpus
    listed = {gpu.uuid for gpu in readout.gpus}
    reasons = {missing.address: missing.reason for missing in readout.missing}
    occupied = {gpu.pci.address for gpu in readout.gpus}
    lost = [
        replace(gpu, lost=gpu.lost or reasons[gpu.pci.address] or "the driver no longer lists it")
        for gpu in before.gpus
        if gpu.uuid not in listed and gpu.pci.address in reasons and gpu.pci.address not in occupied
    ]
    if not lost:
        return readout.gpus
    return tuple(sorted((*readout.gpus, *lost), key=lambda gpu: (gpu.index, gpu.pci.address)))


def diff_inventories(before: Inventory | None, after: Inventory) -> tuple[InventoryFact, ...]:
    """The changes between two inventories, as facts, in index order."""
    known = {gpu.uuid: gpu for gpu in before.gpus} if before is not None else {}
    facts: list[InventoryFact] = []
    for gpu in after.gpus:
        facts.extend(_diff_gpu(known.get(gpu.uuid), gpu, after.generation))
    present = {gpu.uuid for gpu in after.gpus}
    facts.extend(
        GpuVanished(gpu=uuid, generation=after.generation, reason="no longer on the PCI bus", is_gone=True)
        for uuid in known
        if uuid not in present
    )
    return tuple(facts)


def _diff_gpu(before: Gpu | None, after: Gpu, generation: int) -> list[InventoryFact]:
    if before is None:
        return [GpuAppeared(gpu=after.uuid, generation=generation)]
    if after.lost and not before.lost:
        return [GpuVanished(gpu=after.uuid, generation=generation, reason=after.lost)]
    if before.lost and not after.lost:
        return [GpuAppeared(gpu=after.uuid, generation=generation)]
    if _layout(before) != _layout(after):
        return [MigLayoutChanged(gpu=after.uuid, generation=generation)]
    return []


def _layout(gpu: Gpu) -> tuple[bool, frozenset[str]]:
    return gpu.mig_enabled, frozenset(device.uuid for device in gpu.mig_devices)
