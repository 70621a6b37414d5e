"""Nodes, samples and allocations for tests of the exporter; each builder takes only what the test is about."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodeagent.components.exporter.catalogue.selection import select_defaults
from nodeagent.components.exporter.exposition import Block, join_text
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.model.allocation import Allocation, AllocationSource, AllocationTable, PodIdentity
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ProcessPlace
from nodeagent.model.telemetry import GpuSample, MigSample, NodeSample, ProcessSample, ProfilingSample
from tests.support.samples import make_gpu, make_mig, make_uuid
from tests.support.texts.exposition import Series, read_text

GIB = 1024**3
START = 1_767_225_600.0


def make_sample(index: int = 0, **values: Any) -> GpuSample:
    """A GPU at work unless told otherwise."""
    usual: dict[str, Any] = {
        "gpu_utilization_percent": 90,
        "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": 20 * GIB,
        "memory_free_bytes": 59 * GIB,
        "memory_reserved_bytes": GIB,
        "sm_clock_mhz": 1980,
        "power_milliwatts": 651_250,
        "energy_millijoules": 5_000_000,
        "gpu_temperature_celsius": 61,
        "clock_event_reasons": 4,
        "profiling": ProfilingSample(graphics_engine_active=0.9, tensor_active=0.4),
    }
    return GpuSample(uuid=make_uuid(index), **(usual | values))


def make_node(*gpus: GpuSample, seconds: float = START) -> NodeSample:
    return NodeSample(time_seconds=seconds, gpus=gpus, took_seconds=0.05, call_count=100)


def make_mig_shares(index: int, count: int, **values: Any) -> tuple[MigSample, ...]:
    """Samples of the devices that `make_mig` makes."""
    devices = make_mig(index, count).devices
    usual: dict[str, Any] = {"memory_used_bytes": GIB, "profiling": ProfilingSample(graphics_engine_active=0.5)}
    return tuple(
        MigSample(uuid=device.uuid, gpu_instance_id=device.gpu_instance_id, compute_instance_id=0, **(usual | values))
        for device in devices
    )


def allocate(
    pod: str | None,
    *devices: str,
    number: int = 1,
    container: str = "main",
    uid: str = "",
    source: AllocationSource = AllocationSource.JOURNAL,
    resource: str = "nvidia.com/gpu",
) -> Allocation:
    """These devices for this pod of the namespace `ml`."""
    return Allocation(
        number=number,
        resource=ResourceName(resource),
        devices=tuple(DeviceId(device) for device in devices),
        since_seconds=START,
        pod=PodIdentity(namespace="ml", name=pod, uid=uid) if pod is not None else None,
        container=container,
        source=source,
    )


def make_table(*allocations: Allocation) -> AllocationTable:
    return AllocationTable(allocations=tuple(replace(one, number=number) for number, one in enumerate(allocations, 1)))


def make_process(pid: int, *, memory_gib: int = 1, sm: int | None = None) -> ProcessSample:
    return ProcessSample(pid=pid, memory_used_bytes=memory_gib * GIB, sm_utilization_percent=sm)


def know(
    *allocations: Allocation, gpus: int = 1, mig: int = 0, places: Mapping[int, ProcessPlace] | None = None
) -> Knowledge:
    """A node of `gpus` GPUs, the first cut into `mig` instances."""
    known = [make_gpu(index, mig=make_mig(0, mig) if mig and index == 0 else None) for index in range(gpus)]
    return Knowledge(
        inventory=Inventory(generation=1, gpus=tuple(known)),
        driver=DriverState(phase=DriverPhase.READY, driver_version="580.95.05"),
        allocations=make_table(*allocations),
        places=places or {},
    )


def render(
    sample: NodeSample, known: Knowledge, requests: SeriesSelection | None = None, series: NodeSeries | None = None
) -> list[Block]:
    return list((series or NodeSeries()).render(sample, known, requests or SeriesSelection(select_defaults())))


def read_series(blocks: list[Block]) -> Series:
    """What Prometheus would read, with labels in order of their names; fails on anything read twice."""
    return read_text(join_text(blocks).decode())


def find(series: Series, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The series of this name that have these labels."""
    return {
        pairs: value for (one, pairs), value in series.items() if one == name and labels.items() <= dict(pairs).items()
    }


def find_value(series: Series, name: str, **labels: str) -> float:
    """The value of the only series of this name that has these labels."""
    (value,) = find(series, name, **labels).values()
    return value
