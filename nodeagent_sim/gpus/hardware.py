"""Properties of a GPU model on any node: the form of the files in `models/`.

Owns the vocabulary of the data files, with units in the names, and the names that hardware is born with: made up, but
without randomness, so that two agents that simulate the same node agree on every UUID.
Refuses properties of the board or the node: `profile` has those.
"""

import hashlib

from msgspec import Struct

from nodeagent.model.ids import GpuUuid, MigUuid

MIB = 1024 * 1024


class Spec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all values read from a data file: frozen, and a misspelt key is an error."""


class PciSpec(Spec, frozen=True):
    """The GPU's identity on the bus; ids with the device in the upper half, as in NVML."""

    device_id: int
    subsystem_id: int
    generation: int
    width: int = 16

    @property
    def sysfs_device_id(self) -> int:
        """The device alone, as sysfs has it."""
        return self.device_id >> 16


class MemorySpec(Spec, frozen=True):
    """Frame buffer and its window."""

    total_mib: int
    reserved_mib: int
    bar1_mib: int
    row_remapping: bool = True
    """Rows are remapped (Ampere and later); otherwise pages are retired."""


class PowerSpec(Spec, frozen=True):
    """Board power."""

    limit_watts: int
    minimum_watts: int
    idle_watts: int


class ClockSpec(Spec, frozen=True):
    """Clocks at the top, and at rest."""

    sm_mhz: int
    sm_idle_mhz: int
    memory_mhz: int
    memory_idle_mhz: int
    video_mhz: int
    idle_performance_state: int = 0


class ThermalSpec(Spec, frozen=True):
    """Temperatures: of an idle and a busy card in a cool aisle, and the limits."""

    idle_celsius: int
    busy_celsius: int
    maximum_celsius: int
    slowdown_celsius: int
    shutdown_celsius: int
    memory_maximum_celsius: int | None = None
    """`None` where the memory has no sensor."""


class NvLinkSpec(Spec, frozen=True):
    """The GPU's own NVLink ports."""

    links: int
    version: int
    speed_mbps: int


class MigRow(Spec, frozen=True, array_like=True):
    """One shape of GPU instance on this model: a line of `nvidia-smi mig -lgip`, without the counts."""

    memory_mib: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int


class MigSpec(Spec, frozen=True):
    """How the GPU can be partitioned: a geometry by name, and the size of each shape."""

    geometry: str
    shapes: dict[str, MigRow]


class GpuModel(Spec, frozen=True):
    """One product, as NVML describes it."""

    name: str
    brand: str
    architecture: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    board_part_number: str
    vbios_version: str
    pci: PciSpec
    memory: MemorySpec
    power: PowerSpec
    clocks: ClockSpec
    thermal: ThermalSpec
    nvlink: NvLinkSpec | None = None
    mig: MigSpec | None = None

    @property
    def total_bytes(self) -> int:
        """All of the frame buffer."""
        return self.memory.total_mib * MIB

    @property
    def has_thermal_margin(self) -> bool:
        """Whether the driver gives the distance to the limit (Ada and later) beside the temperature."""
        return self.compute_capability >= (8, 9)

    @property
    def has_profiling(self) -> bool:
        """Whether NVML gives hardware counters (Hopper and later)."""
        return self.compute_capability >= (9, 0)


def make_gpu_uuid(profile: str, node_name: str, index: int) -> GpuUuid:
    """The UUID of the GPU in this slot of this node."""
    return GpuUuid(f"GPU-{_make_uuid('gpu', profile, node_name, index)}")


def make_mig_uuid(gpu: GpuUuid, gpu_instance_id: int, compute_instance_id: int, layout: int) -> MigUuid:
    """The UUID of a MIG device; a new layout gives new UUIDs, as for a re-created instance."""
    return MigUuid(f"MIG-{_make_uuid('mig', gpu, gpu_instance_id, compute_instance_id, layout)}")


def make_serial(gpu: GpuUuid) -> str:
    """A board serial number of the usual thirteen digits."""
    return f"1{int(_digest('serial', gpu)[:15], 16) % 10**12:012d}"


def make_seed(*parts: object) -> int:
    """A seed for a generator of the given things alone."""
    return int(_digest("seed", *parts)[:16], 16)


def _make_uuid(*parts: object) -> str:
    text = _digest(*parts)
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
