"""Properties of a GPU model on any node: the form of the files in `models/`.

Owns the vocabulary of the data files, with units in the names.
Refuses properties of the board or the node: `profile` has those.
"""

from msgspec import Struct

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
