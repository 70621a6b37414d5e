"""Each pod's use of each device: memory and SM time of the pod's processes, energy, time held and time idle; pure.

Owns the totals. A pod's series end with the allocation. No use is counted twice: shared use is divided, and the free
rest of a device belongs to no pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodeagent.components.exporter.attribution.holders import Holder, Holders, list_holders
from nodeagent.components.exporter.catalogue.field import Entity
from nodeagent.model.ids import GpuUuid
from nodeagent.model.ports import ProcessPlace

IDLE_RATIO = 0.005
"""A hardware counter below this is noise, not work."""

GAP_SECONDS_MAX = 600.0
"""Samples further apart tell of a clock that was set or a node that slept, not of work: a boot without a battery-backed
clock would count half a century."""


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """One pod's container on one device."""

    gpu: GpuUuid
    gpu_instance_id: int | None
    holder: Holder


@dataclass(slots=True)
class Usage:
    """The use of one share; `None` where the hardware does not report a value."""

    memory_used_bytes: int | None = None
    sm_ratio: float | None = None
    energy_joules: float | None = None
    held_seconds: float = 0.0
    idle_seconds: float | None = None


@dataclass(slots=True)
class _Claim:
    """A share's weight in the energy of the GPU, during the division."""

    share: ContainerUsage | None
    weight: float
    fallback: float
    """The weight where all are idle or nothing is known of their work."""


@dataclass(slots=True)
class PodAccounts:
    """All shares of the node."""

    usages: dict[ContainerUsage, Usage] = field(default_factory=dict)
    _energy: dict[GpuUuid, int] = field(default_factory=dict)
    _before_seconds: float = 0.0

    def update(
        self, devices: Sequence[Entity], holders: Holders, places: Mapping[int, ProcessPlace], now_seconds: float
    ) -> None:
        """Add one sample to the totals."""
        passed = now_seconds - self._before_seconds if self._before_seconds else 0.0
        passed = passed if 0 <= passed <= GAP_SECONDS_MAX else 0.0
        self._before_seconds = now_seconds
        before, self.usages = self.usages, {}
        claims: dict[GpuUuid, list[_Claim]] = {}
        for entity in devices:
            shares = [
                ContainerUsage(entity.gpu.uuid, entity.gpu_instance_id, holder)
                for holder in list_holders(entity, holders)
            ]
            for share in shares:
                self.usages[share] = before.get(share) or Usage()
            if not entity.board.lost:
                measure_usage(entity, [(share, self.usages[share]) for share in shares], places)
            claims.setdefault(entity.gpu.uuid, []).extend(self._spend_time(entity, shares, passed))
        self._spend_energy(devices, claims, passed)

    def _spend_time(self, entity: Entity, shares: Sequence[ContainerUsage], passed_seconds: float) -> list[_Claim]:
        slices = entity.instance.attributes.gpu_instance_slice_count if entity.instance is not None else 1
        for share in shares:
            usage, activity = self.usages[share], self._read_activity(entity, share, len(shares))
            usage.held_seconds += passed_seconds
            if activity is not None:
                usage.idle_seconds = (usage.idle_seconds or 0.0) + (passed_seconds if activity < IDLE_RATIO else 0.0)
        if entity.instance is not None:
            # Instances divide the GPU by size and work; pods on one instance divide it evenly, no driver tells more.
            activity = _read_engine(entity)
            weight = slices * (activity if activity is not None else 1.0)
            owners: list[ContainerUsage | None] = [*shares] or [None]
            return [_Claim(owner, weight / len(owners), slices / len(owners)) for owner in owners]
        return [_Claim(share, self.usages[share].sm_ratio or 0.0, 1.0) for share in shares]

    def _read_activity(self, entity: Entity, share: ContainerUsage, holders: int) -> float | None:
        if entity.instance is not None:
            return _read_engine(entity)
        if holders > 1:
            return self.usages[share].sm_ratio
        percent = entity.board.gpu_utilization_percent
        return None if percent is None else percent / 100

    def _spend_energy(self, devices: Iterable[Entity], claims: Mapping[GpuUuid, list[_Claim]], passed: float) -> None:
        boards = {entity.gpu.uuid: entity.board for entity in devices}
        for gpu, board in boards.items():
            joules = None
            if board.energy_millijoules is not None:
                before = self._energy.get(gpu, board.energy_millijoules)
                joules = max(0, board.energy_millijoules - before) / 1000
                self._energy[gpu] = board.energy_millijoules
            elif board.power_milliwatts is not None:
                joules = board.power_milliwatts / 1000 * passed
            if joules is not None:
                self._divide(joules, claims[gpu])
        for gone in self._energy.keys() - boards.keys():
            del self._energy[gone]

    def _divide(self, joules: float, claims: Sequence[_Claim]) -> None:
        weights = [claim.weight for claim in claims]
        if sum(weights) <= 0:
            weights = [claim.fallback for claim in claims]
        whole = sum(weights)
        for claim, weight in zip(claims, weights, strict=True):
            if claim.share is not None:
                usage = self.usages[claim.share]
                usage.energy_joules = (usage.energy_joules or 0.0) + joules * weight / whole


def measure_usage(
    entity: Entity, shares: Sequence[tuple[ContainerUsage, Usage]], places: Mapping[int, ProcessPlace]
) -> None:
    """Memory and SM time of each share, by the pod's processes; no process means no use."""
    partitioned = entity.instance is not None
    for _share, usage in shares:
        usage.memory_used_bytes = 0
        usage.sm_ratio = None if partitioned else 0.0
    for process in entity.share.processes:
        owner = _find_owner(process.pid, shares, places)
        if owner is None:
            continue
        owner.memory_used_bytes = (owner.memory_used_bytes or 0) + (process.memory_used_bytes or 0)
        if owner.sm_ratio is not None:
            owner.sm_ratio = min(1.0, owner.sm_ratio + (process.sm_utilization_percent or 0) / 100)


def _find_owner(
    pid: int, shares: Sequence[tuple[ContainerUsage, Usage]], places: Mapping[int, ProcessPlace]
) -> Usage | None:
    """The owner by the pod's UID; without a UID, the only holder of the device."""
    place = places.get(pid)
    if place is not None:
        if not place.pod_uid:
            return None  # a process of the host
        for share, usage in shares:
            if share.holder.uid == place.pod_uid:
                return usage
    if len(shares) == 1 and (place is None or not shares[0][0].holder.uid):
        return shares[0][1]
    return None


def _read_engine(entity: Entity) -> float | None:
    profiling = entity.profiling
    return profiling.graphics_engine_active if profiling is not None else None
