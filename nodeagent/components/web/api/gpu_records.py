"""Joins the states of each GPU: identity, sample, health, holders; pure."""

from collections.abc import Mapping

from nodeagent.components.web.api.fractions import FractionHolders
from nodeagent.components.web.api.latest import ReadLatest
from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord, FractionHolder, GpuRecord, GpusRecord
from nodeagent.model.allocation import Allocation, AllocationTable
from nodeagent.model.devices import DeviceClassState, DeviceReadings, DeviceReadingTable, DeviceTable, HostDevice
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid
from nodeagent.model.journal import FractionTable
from nodeagent.model.mig import MigState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import PluginState
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.offer.resources import list_free


def join_gpus(
    inventory: Inventory,
    read: ReadLatest,
    allocations: AllocationTable | None,
    parts: FractionHolders,
    *,
    now_seconds: float,
) -> GpusRecord:
    """A record per GPU of the inventory; unread values are missing from the record."""
    known = _GpuStates(read, allocations, now_seconds)
    return GpusRecord(
        generation=inventory.generation,
        gpus=tuple(known.join(gpu, parts.get(gpu.uuid, ())) for gpu in inventory.gpus),
        pairs=inventory.pairs,
        switches=inventory.switches,
        missing=inventory.missing,
        vanished=inventory.vanished,
    )


class _GpuStates:
    """All states besides the inventory, by GPU or device."""

    def __init__(self, read: ReadLatest, table: AllocationTable | None, now_seconds: float) -> None:
        sample, health, plugin = read(NodeSample), read(HealthReport), read(PluginState)
        offering, mig = read(Offering), read(MigState)
        self._age_seconds = max(0.0, now_seconds - sample.time_seconds) if sample is not None else None
        self._is_old = sample is not None and sample.is_old(now_seconds)
        self._samples: dict[str, GpuSample] = {one.uuid: one for one in sample.gpus} if sample is not None else {}
        self._verdicts: dict[str, list[DeviceHealth]] = {}
        for verdict in health.devices if health is not None else ():
            self._verdicts.setdefault(verdict.gpu, []).append(verdict)
        self._doors = {mode.gpu: mode for mode in offering.doors} if offering is not None else {}
        self._changes = {change.gpu: change for change in mig.changes} if mig is not None else {}
        self._allocations = table.allocations if table is not None else ()
        offers = plugin is not None and plugin.account is not None
        free = list_free(plugin, self._allocations) if plugin is not None and offers else ()
        self._free = frozenset(map(find_uuid, free)) if offers else None
        self._places: dict[str, list[int]] = {}
        """Where in the table each device is."""
        for place, allocation in enumerate(self._allocations):
            for device in allocation.devices:
                self._places.setdefault(find_uuid(device), []).append(place)

    def join(self, gpu: Gpu, parts: tuple[FractionHolder, ...]) -> GpuRecord:
        newest = self._samples.get(gpu.uuid)
        return GpuRecord(
            gpu=gpu,
            sample=newest,
            sample_age_seconds=self._age_seconds if newest is not None else None,
            sample_is_old=newest is not None and self._is_old,
            health=tuple(self._verdicts.get(gpu.uuid, ())),
            allocations=self._find_allocations(gpu),
            door=self._doors.get(gpu.uuid),
            free=self._find_free(gpu),
            parts=parts,
            change=self._changes.get(gpu.uuid),
        )

    def _find_free(self, gpu: Gpu) -> tuple[str, ...] | None:
        if self._free is None:
            return None
        # The list follows a loss or a verdict a moment later.
        unfit = {one.device for one in self._verdicts.get(gpu.uuid, ()) if one.verdict is Verdict.UNHEALTHY}
        uuids = () if gpu.lost else gpu.device_uuids
        return tuple(uuid for uuid in uuids if uuid in self._free and uuid not in unfit)

    def _find_allocations(self, gpu: Gpu) -> tuple[Allocation, ...]:
        """The allocations of the GPU and of its MIG devices, each once, in the order of the table."""
        uuids = (gpu.uuid, *(device.uuid for device in gpu.mig_devices))
        places = {place for uuid in uuids for place in self._places.get(uuid, ())}
        return tuple(self._allocations[place] for place in sorted(places))


def find_gpu_record(records: GpusRecord, name: str) -> GpuRecord | None:
    """By UUID, MIG UUID, PCI address, or index."""
    for record in records.gpus:
        gpu = record.gpu
        names = {gpu.pci.address, str(gpu.index), *gpu.device_uuids}
        if name in names:
            return record
    return None


def join_devices(
    table: DeviceTable | None,
    allocations: AllocationTable | None,
    readings: DeviceReadingTable | None,
    fractions: FractionTable | None = None,
) -> tuple[DeviceClassRecord, ...]:
    """Every class with its devices."""
    held = allocations.allocations if allocations is not None else ()
    read = readings.readings if readings is not None else {}
    parted = fractions or FractionTable()
    return tuple(_join_class(each, held, read, parted) for each in (table.classes if table is not None else ()))


def _join_class(
    state: DeviceClassState,
    held: tuple[Allocation, ...],
    read: Mapping[DeviceId, DeviceReadings],
    parted: FractionTable,
) -> DeviceClassRecord:
    return DeviceClassRecord(
        resource=state.resource,
        replicas=state.replicas,
        devices=tuple(_join_device(device, held, read.get(device.id), parted) for device in state.devices),
        problems=state.problems,
        divisible=state.divisible,
    )


def _join_device(
    device: HostDevice, held: tuple[Allocation, ...], readings: DeviceReadings | None, parted: FractionTable
) -> DeviceRecord:
    gpu = GpuUuid(device.id)
    bindings = parted.by_gpu.get(gpu, ())
    mine = [(one, name) for one in held for name in one.devices if find_uuid(name) == device.id]
    return DeviceRecord(
        device=device,
        holders=tuple(dict.fromkeys((*(_name(one) for one, _ in mine), *(one.pod.describe() for one in bindings)))),
        shares_held=len(mine),
        cores_held=parted.sum_fractions(gpu).cores,
        readings=readings,
    )


def _name(allocation: Allocation) -> str:
    return f"allocation {allocation.number}" if allocation.pod is None else allocation.pod.describe()
