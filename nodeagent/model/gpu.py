"""GPUs as they are: identity, place, partitions and links. Readings of each second are in `telemetry`."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cached_property

from nodeagent.model.ids import DeviceUuid, GpuUuid, MigUuid, PciAddress
from nodeagent.model.values import Value


class Unreadable(Value, frozen=True):
    """A datum of a device that could not be read, and why; never a reason to hide the device."""

    what: str
    reason: str


class PciIdentity(Value, frozen=True):
    """A GPU's place on the PCI bus and its PCI ids."""

    address: PciAddress
    device_id: int
    """Device in the upper half, vendor in the lower, as the driver has them: 0x233010DE."""
    subsystem_id: int = 0
    link_generation_max: int | None = None
    link_width_max: int | None = None


class MigAttributes(Value, frozen=True):
    """The resources of a MIG device; devices with equal attributes are alike."""

    multiprocessor_count: int
    gpu_instance_slice_count: int
    compute_instance_slice_count: int
    memory_mib: int
    shared_copy_engine_count: int = 0
    shared_decoder_count: int = 0
    shared_encoder_count: int = 0
    shared_jpeg_count: int = 0
    shared_ofa_count: int = 0


class MigDevice(Value, frozen=True):
    """A compute instance in a GPU instance: the unit given to a container."""

    uuid: MigUuid
    parent: GpuUuid
    index: int
    gpu_instance_id: int
    compute_instance_id: int
    profile: str
    """`1g.10gb`, or `1c.2g.20gb` for a compute instance smaller than its GPU instance."""
    attributes: MigAttributes
    placement_start: int | None = None
    placement_size: int | None = None


class MigProfile(Value, frozen=True):
    """A shape of GPU instance supported by the GPU."""

    name: str
    profile_id: int
    slice_count: int
    memory_mib: int
    multiprocessor_count: int
    instances_max: int
    placements: tuple[int, ...] = ()
    """Possible start positions, in memory slices."""
    placement_size: int = 1
    copy_engine_count: int = 0
    decoder_count: int = 0
    encoder_count: int = 0
    jpeg_count: int = 0
    ofa_count: int = 0


class Mig(Value, frozen=True):
    """A GPU's MIG state; the field on the GPU is `None` where the hardware knows no MIG."""

    enabled: bool
    pending: bool
    """The mode after the next reset; differs from `enabled` while a change waits."""
    devices: tuple[MigDevice, ...] = ()
    profiles: tuple[MigProfile, ...] = ()
    devices_max: int = 0


class NvLink(Value, frozen=True):
    """An NVLink of a GPU."""

    link: int
    active: bool
    remote: PciAddress | None = None
    remote_is_switch: bool = False
    version: int | None = None
    speed_mbps: int | None = None


class FabricPhase(StrEnum):
    """How far a GPU's registration with the NVLink fabric has come."""

    NOT_SUPPORTED = "not_supported"
    NOT_STARTED = "not_started"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Fabric(Value, frozen=True):
    """A GPU's place in a switched NVLink fabric."""

    phase: FabricPhase
    status_code: int = 0
    """The driver's return code of the registration; meaningful only in the phase `COMPLETED`."""
    cluster_uuid: str = ""
    clique_id: int = 0
    health_mask: int = 0
    health_summary: int = 0
    """0 not reported, 1 healthy, 2 unhealthy, 3 limited capacity."""

    @property
    def has_place(self) -> bool:
        """Whether the GPU is part of a domain; boards whose fabric ends at their own switches report zeros."""
        return self.cluster_uuid.strip("0-") != ""


class VirtualizationMode(StrEnum):
    """Whether the GPU is whole, passed through, or shared by a hypervisor."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    HOST_VGPU = "host_vgpu"
    HOST_VSGA = "host_vsga"


class ComputeMode(IntEnum):
    """Which processes may use a GPU, as the driver numbers the modes."""

    DEFAULT = 0
    """Any number of processes."""
    EXCLUSIVE_THREAD = 1
    """A single thread; a mode that the driver no longer knows."""
    PROHIBITED = 2
    EXCLUSIVE_PROCESS = 3
    """A single process: the daemon, for all of its clients."""


class Gpu(Value, frozen=True):
    """A physical GPU. A field that could not be read is `None` or empty and named in `unreadable`."""

    index: int
    """The driver's index: not the minor number of the device node, and not stable across reboots."""
    uuid: GpuUuid
    name: str
    pci: PciIdentity
    minor: int | None = None
    numa_node: int | None = None
    cpu_affinity: str = ""
    """CPUs near this GPU in list form, such as `0-55,112-167`."""
    memory_total_bytes: int = 0
    compute_capability: tuple[int, int] | None = None
    architecture: str = ""
    brand: str = ""
    serial: str = ""
    board_part_number: str = ""
    vbios_version: str = ""
    multiprocessor_count: int | None = None
    power_limit_milliwatts: int | None = None
    """The configured limit; the limit in force, possibly lower, is in the sample."""
    persistence_mode: bool | None = None
    compute_mode: ComputeMode | None = None
    application_clocks_mhz: tuple[int, int] | None = None
    """Of memory and graphics: the clocks that applications get unless clocks are locked, which no driver tells."""
    ecc_enabled: bool | None = None
    inforom_valid: bool | None = None
    """Whether the checksums of the board's InfoROM are right."""
    virtualization_mode: VirtualizationMode = VirtualizationMode.NONE
    addressing_mode: str = ""
    """How the GPU reaches the host's memory: `ATS`, `HMM` or `None`; empty for a driver without an answer."""
    mig: Mig | None = None
    nvlinks: tuple[NvLink, ...] = ()
    fabric: Fabric | None = None
    lost: str = ""
    """Why the GPU cannot be reached at all; empty for a GPU that answers."""
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def mig_enabled(self) -> bool:
        """Whether the GPU can only be used as MIG devices; False where MIG is unknown."""
        return self.mig is not None and self.mig.enabled

    @property
    def mig_devices(self) -> tuple[MigDevice, ...]:
        """The existing MIG devices; empty while MIG is off or unknown."""
        return self.mig.devices if self.mig is not None and self.mig.enabled else ()

    @property
    def device_uuids(self) -> tuple[DeviceUuid, ...]:
        """The GPU itself and its MIG devices."""
        return (self.uuid, *(device.uuid for device in self.mig_devices))


class PathKind(StrEnum):
    """The worst hop between two GPUs over PCIe, spelled as `nvidia-smi topo -m` does."""

    SELF = "X"
    BRIDGE = "PIX"
    BRIDGES = "PXB"
    HOST_BRIDGE = "PHB"
    NODE = "NODE"
    SYSTEM = "SYS"


class GpuPair(Value, frozen=True):
    """How two GPUs reach each other; `left` has the smaller index."""

    left: GpuUuid
    right: GpuUuid
    path: PathKind
    nvlink_count: int = 0
    """Links between the two, direct or through switches."""
    through_switch: bool = False


class NvSwitch(Value, frozen=True):
    """An NVSwitch of the node's own board."""

    address: PciAddress
    link_count: int = 0


class MissingGpu(Value, frozen=True):
    """A GPU on the PCI bus, missing from the driver's list."""

    address: PciAddress
    device_id: int
    reason: str


class StoredGpu(Value, frozen=True):
    """A GPU that the node has or had, as stored over restarts."""

    uuid: GpuUuid
    name: str
    index: int
    """The GPU's index at its last poll."""
    address: PciAddress
    gone_since_seconds: float | None = None
    """Unix seconds of the first poll without the GPU; `None` while present."""


class GpuReadout(Value, frozen=True):
    """The result of an enumeration of the hardware, before the comparison with the result before."""

    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    switches: tuple[NvSwitch, ...] = ()
    missing: tuple[MissingGpu, ...] = ()


class Inventory(Value, frozen=True, dict=True):
    """State: the node's GPUs, whole; a new generation for each change of substance."""

    generation: int
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    switches: tuple[NvSwitch, ...] = ()
    missing: tuple[MissingGpu, ...] = ()
    vanished: tuple[StoredGpu, ...] = ()
    """GPUs that the node had and has no more, until a person confirms the removal."""
    shortfall: int = 0
    """How many further GPUs are expected, unknown except for their number."""
    expected_by: str = ""
    """The source of the expectation, as people name it; empty without a shortfall."""

    def find_gpu(self, uuid: str) -> Gpu | None:
        """The GPU with this UUID, or the parent of the MIG device with this UUID."""
        return self._by_uuid.get(uuid)

    @property
    def unlisted(self) -> tuple[MissingGpu, ...]:
        """Missing GPUs, without lost GPUs."""
        addresses = {gpu.pci.address for gpu in self.gpus}
        return tuple(one for one in self.missing if one.address not in addresses)

    @cached_property
    def _by_uuid(self) -> Mapping[str, Gpu]:
        """Cached, as lists of devices look up each device."""
        # From the end, so that of two GPUs with the same UUID the first is found.
        found: dict[str, Gpu] = {}
        for gpu in reversed(self.gpus):
            found |= dict.fromkeys(gpu.device_uuids, gpu)
        return found

    @property
    def device_uuids(self) -> tuple[DeviceUuid, ...]:
        """All GPUs and all MIG devices, in index order."""
        uuids: list[DeviceUuid] = []
        for gpu in self.gpus:
            uuids.append(gpu.uuid)
            uuids.extend(device.uuid for device in gpu.mig_devices)
        return tuple(uuids)
