"""Configurations of claims, right and wrong, for whoever decides about them: our reader, NVIDIA's, and the policy."""

from collections.abc import Iterator
from typing import Any, Final

from nodeagent.components.claims.opaque import read_parameters
from nodeagent.model.errors import ClaimRefused, MpsRefused
from nodeagent.rules.mps.limits import resolve_limits
from tests.support.claims import VERSION, gpu_config
from tests.support.gpus import gpu_uuid

Json = Any
GPUS: Final = (gpu_uuid(0), gpu_uuid(1))
KINDS: Final = ("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig")
ODD: Final[tuple[Json, ...]] = (None, True, 7, -1, 1.5, "", "x", [], ["x"], {}, {"x": 1})
"""What may stand where something else belongs."""
SIZES: Final[tuple[Json, ...]] = (
    *("1Mi", "1.5Mi", "10Gi", "500M", "1048576", "1e9", "2Ti", "1048575", "1Ki", "0", "-1Gi", "0.5", "100m"),
    *("10gb", "Gi", " 1Gi", "1 Gi", "+1Gi", "1.Gi", ".5Gi", "1E", "0x10", 1 << 20, 1 << 30, 7, 0),
)
PERCENTAGES: Final[tuple[Json, ...]] = (0, 1, 50, 100, 101, -1, 50.5, "50")


def list_configs() -> Iterator[Json]:
    """Each field of each kind with what belongs there and what does not, one oddity at a time."""
    yield from ({}, {"apiVersion": VERSION}, {"kind": "GpuConfig"}, *ODD[1:])
    yield {"apiVersion": "resource.nvidia.com/v9", "kind": "GpuConfig"}
    yield {"apiVersion": VERSION, "kind": "ComputeDomainChannelConfig", "domainID": "x"}
    for kind in KINDS:
        yield gpu_config(kind=kind)
        yield gpu_config(kind=kind) | {"sharin": {}}
        yield gpu_config(kind=kind) | {"iommu": {"backendPolicy": "LegacyOnly"}}
        yield from (gpu_config(kind=kind) | {"sharing": each} for each in ODD)
        for strategy in ("TimeSlicing", "MPS", "timeslicing", *ODD):
            yield gpu_config({"strategy": strategy}, kind)
            yield gpu_config({"strategy": strategy, "mpsConfig": {}}, kind)
            yield gpu_config({"strategy": strategy, "timeSlicingConfig": {"interval": "Default"}}, kind)
        yield gpu_config({"strategy": "MPS", "more": 1}, kind)
        for interval in ("Default", "Short", "Medium", "Long", "short", "Forever", *ODD):
            yield gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}, kind)
        yield from (gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": each}, kind) for each in ODD)
        yield from (gpu_config({"strategy": "MPS", "mpsConfig": each}, kind) for each in ODD)
        yield from (with_mps(kind, defaultActiveThreadPercentage=each) for each in (*PERCENTAGES, *ODD))
        yield from (with_mps(kind, multiUser=each) for each in (False, *ODD))
        yield from (with_mps(kind, defaultPinnedDeviceMemoryLimit=each) for each in (*SIZES, *ODD))
        yield from (with_mps(kind, defaultPerDevicePinnedMemoryLimit={"0": each}) for each in (*SIZES, *ODD))
        yield from (with_mps(kind, defaultPerDevicePinnedMemoryLimit=each) for each in ODD[1:-1])


def with_mps(kind: str, **fields: Json) -> Json:
    return gpu_config({"strategy": "MPS", "mpsConfig": fields}, kind)


def find_refusal(parameters: Json) -> str:
    """Why Prepare refuses a configuration on every node; empty for one that some node takes."""
    try:
        request = read_parameters(parameters, "parameters")
        mps = request.mps
        resolve_limits(GPUS, mps.thread_percentage, mps.memory_bytes, dict(mps.memory_bytes_by_gpu))
    except (ClaimRefused, MpsRefused) as error:
        return str(error)
    return ""
