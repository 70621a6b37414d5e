"""The most clients of a GPU, and the limits of each client by the configuration of a claim.

Owns the arithmetic, equal to that of NVIDIA's DRA driver, to the MiB.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.model.errors import MpsRefused
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsLimits

MIB: Final = 1 << 20
_OLD_CAPABILITY: Final = (7, 5)
_FIRST_CAPABILITY: Final = (7, 0)
_CLIENTS_OLD, _CLIENTS = 16, 48
_KEY_MAX: Final = 60
"""Characters of the name of a GPU; of more digits Python makes no number."""


def find_most_replicas(gpu: Gpu) -> int:
    """The most clients of a GPU: fewer on GPUs before Turing."""
    capability = gpu.compute_capability
    return _CLIENTS_OLD if capability is not None and capability < _OLD_CAPABILITY else _CLIENTS


def find_most_clients(gpu: Gpu) -> int:
    """The most containers that MPS holds to a fraction of a GPU; 0 before Volta."""
    is_old = gpu.compute_capability is not None and gpu.compute_capability < _FIRST_CAPABILITY
    return 0 if is_old else find_most_replicas(gpu)


def resolve_limits(
    gpus: Sequence[GpuUuid],
    thread_percentage: int | None = None,
    memory_bytes: int | None = None,
    memory_bytes_by_gpu: Mapping[str, int] | None = None,
) -> MpsLimits:
    """The limits in `mpsConfig` of a claim.

    `memory_bytes_by_gpu` goes by UUID or by place among the sorted UUIDs, and outranks the default.

    Raises:
        MpsRefused: the configuration makes no sense for these GPUs.
    """
    if thread_percentage is not None and not 0 <= thread_percentage <= 100:
        raise MpsRefused(f"defaultActiveThreadPercentage is {thread_percentage}: give 0 to 100")
    places = sorted(gpus)
    limits = (
        {} if memory_bytes is None else dict.fromkeys(places, _floor("defaultPinnedDeviceMemoryLimit", memory_bytes))
    )
    for key, size in (memory_bytes_by_gpu or {}).items():
        limits[_find(key, places)] = _floor(f"defaultPerDevicePinnedMemoryLimit[{key[:_KEY_MAX]}]", size)
    return MpsLimits(thread_percentage=thread_percentage, memory_mib=limits)


def _find(key: str, places: Sequence[GpuUuid]) -> GpuUuid:
    if key in places:
        return GpuUuid(key)
    if len(key) <= _KEY_MAX and key.isascii() and key.isdigit() and int(key) < len(places):
        return places[int(key)]
    raise MpsRefused(
        f"defaultPerDevicePinnedMemoryLimit names {key[:_KEY_MAX]!r}: give the UUID of a GPU of the claim,"
        f" or its place from 0 to {len(places) - 1}"
    )


def _floor(name: str, size: int) -> int:
    if size < MIB:
        raise MpsRefused(f"{name} is {size} bytes: give 1Mi at least")
    return size // MIB
