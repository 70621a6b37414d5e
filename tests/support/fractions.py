"""What gives GPUs in parts, made of as little as a test cares about."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodeagent.components.fractions.decide import FractionView, plan_view
from nodeagent.components.web.api.records import FractionHolder
from nodeagent.config.schema import Settings
from nodeagent.config.sections.allocation_modes import AllocationModeRule, AllocationModeSettings
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, FractionTable, GpuFraction, Reservation
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.usage import FractionUse
from nodeagent.rules.fractions.pairing import Caller
from tests.support.gpus import gpu_uuid, make_inventory
from tests.support.journals import CORE, MEMORY
from tests.support.placement import GIB, make_sized

BLOCKS_PER_GIB = 4
PROXY = PodContainer(
    id="proxy", pod_uid="uid-proxy", name="proxy", state=ContainerState.RUNNING, namespace="kube-system", pod="proxy"
)
"""A container that runs on every node, whatever else does."""


def make_parted(count: int = 2, memory_bytes: int = 32 * GIB) -> Inventory:
    return make_inventory(make_sized(count, memory_bytes))


def make_offering(inventory: Inventory, doors: Mapping[int, tuple[AllocationMode, bool]] | None = None) -> Offering:
    """Each GPU behind the door of parts, open, but for those of which the test says something else."""
    known = doors or {}
    return Offering(
        doors=tuple(_make_door(gpu, *known.get(gpu.index, (AllocationMode.FRACTIONS, True))) for gpu in inventory.gpus)
    )


def _make_door(gpu: Gpu, door: AllocationMode, is_open: bool) -> GpuAllocationMode:
    return GpuAllocationMode(
        gpu=gpu.uuid, index=gpu.index, address=gpu.pci.address, door=door, wanted=door, reason="test", is_open=is_open
    )


def make_health(inventory: Inventory, verdicts: Mapping[int, Verdict] | None = None, reason: str = "") -> HealthReport:
    """All are healthy, but for those of which the test says something else."""
    known = verdicts or {}
    return HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(
                device=gpu.uuid,
                gpu=gpu.uuid,
                verdict=known.get(gpu.index, Verdict.HEALTHY),
                since_seconds=0.0,
                reason=reason if gpu.index in known else "",
            )
            for gpu in inventory.gpus
        ),
    )


def make_view(inventory: Inventory | None = None, *, has_mps: bool = False, **fractions: Any) -> FractionView:
    """All GPUs in parts, healthy."""
    known = inventory or make_parted()
    settings = FractionsSettings(enabled=True, **fractions)
    return plan_view(known, make_offering(known), make_health(known), settings, has_mps=has_mps)


def make_settings(*indexes: int, **fractions: Any) -> Settings:
    """These GPUs in parts, the others whole; all in parts where none is named."""
    rule = AllocationModeRule(door="fractions", gpus=tuple(map(str, indexes)) or ("all",))
    return Settings(fractions=FractionsSettings(enabled=True, **fractions), doors=AllocationModeSettings(rules=(rule,)))


def ids(text: str) -> tuple[DeviceId, ...]:
    """`ab` are the ids a and b."""
    return tuple(map(DeviceId, text))


def make_pod(name: str = "a", *, uid: str = "") -> PodIdentity:
    return PodIdentity(namespace="ns", name=name, uid=uid or f"uid-{name}")


def make_caller(cores: Iterable[str], memory: Iterable[str] = (), pod: PodIdentity | None = None) -> Caller:
    return Caller(
        pod=pod or make_pod(),
        containers=("main",),
        cores=tuple(map(DeviceId, cores)),
        memory=tuple(map(DeviceId, memory)),
    )


def make_promise(number: int, devices: Iterable[str], resource: ResourceName = CORE) -> Reservation:
    """Of cores with the name p1 for number 1; of memory with none."""
    return Reservation(
        number=number,
        resource=resource,
        devices=tuple(map(DeviceId, devices)),
        since_seconds=0.0,
        cdi_name="" if resource == MEMORY else f"k8s.device-plugin.nvidia.com/part=p{number}",
    )


def make_bound(
    number: int, reservations: Iterable[int], *parts: GpuFraction, pod: PodIdentity | None = None, name: str = ""
) -> Binding:
    return Binding(
        number=number,
        reservations=tuple(reservations),
        pod=pod or make_pod(),
        container="main",
        parts=parts,
        since_seconds=0.0,
        cdi_name=name,
    )


def make_table(reservations: Iterable[Reservation] = (), bindings: Iterable[Binding] = ()) -> FractionTable:
    return FractionTable(
        reservations={each.number: each for each in reservations}, bindings={each.number: each for each in bindings}
    )


def make_holders(*pods: str) -> tuple[FractionHolder, ...]:
    """Each pod with a part of the first GPU, in the namespace ml."""
    return tuple(
        FractionHolder(
            number=number,
            pod=PodIdentity(namespace="ml", name=name),
            container="main",
            since_seconds=1.0,
            use=FractionUse(gpu=gpu_uuid(0), index=0, cores=10, memory_bytes=1),
        )
        for number, name in enumerate(pods)
    )


def part(index: int, cores: int, gibibytes: int) -> GpuFraction:
    return GpuFraction(gpu=gpu_uuid(index), cores=cores, memory_bytes=gibibytes * GIB)


def used(table: FractionTable) -> dict[GpuUuid, tuple[int, int, int]]:
    """By GPU the cores and bytes that are bound, and the number of bindings."""
    sums: dict[GpuUuid, tuple[int, int, int]] = {}
    for binding in table.bindings.values():
        for each in binding.parts:
            cores, memory, users = sums.get(each.gpu, (0, 0, 0))
            sums[each.gpu] = cores + each.cores, memory + each.memory_bytes, users + 1
    return sums
