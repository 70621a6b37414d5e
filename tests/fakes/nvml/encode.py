"""Puts a simulated node's profile into the shared memory: the same boards, seen through NVML."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from nodeagent.model.gpu import PathKind
from nodeagent_sim.gpus.hardware import MIB, GpuModel, make_gpu_uuid, make_mig_uuid, make_serial
from nodeagent_sim.gpus.mig_geometry import GEOMETRIES, MigShape, PlacedInstance, list_shapes, plan_layout
from nodeagent_sim.gpus.profile import Profile, Seat
from nodeagent_sim.gpus.topology import find_path, list_nvlinks
from tests.fakes.nvml import layout
from tests.fakes.nvml.layout import ABSENT_32, ABSENT_64

ADDRESSING = {"None": 0, "HMM": 1, "ATS": 2}
ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10}
BRANDS = {"NVIDIA": 14, "NVIDIA RTX": 13, "Tesla": 2}
LEVELS = {
    PathKind.SELF: 0,
    PathKind.BRIDGE: 10,
    PathKind.BRIDGES: 20,
    PathKind.HOST_BRIDGE: 30,
    PathKind.NODE: 40,
    PathKind.SYSTEM: 50,
}
AMPERE = 8
"""The generation whose NVLinks go down with MIG."""

COMPUTE_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""The id of a compute instance's profile, by its slices."""

XID_AND_ECC_EVENTS = 0x1F | 0x80
LATER_EVENTS = 0xFF00
FIFTH_NVLINK = 5
NO_BIT_ERRORS = 15 << 8 | 255
AMPERE_CAPABILITY, HOPPER_CAPABILITY = (8, 0), (9, 0)
PROFILING_METRICS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 20, 21, 60, 61)


def encode_profile(state: layout.State, profile: Profile, node_name: str = "simulated") -> None:
    """Fill the whole state with the profile's node at rest: nothing runs, nothing is broken."""
    state.driver_version = profile.driver.version.encode()
    state.nvml_version = profile.driver.nvml_version.encode()
    state.cuda_version = profile.driver.cuda[0] * 1000 + profile.driver.cuda[1] * 10
    state.confidential_compute = 0
    for seat in profile.seats:
        gpu = state.gpus[seat.index]
        _encode_identity(gpu, profile, seat, node_name)
        _encode_rest(gpu, seat.model)
        _encode_links(gpu, profile, seat)
        _encode_fabric(gpu, profile)
        _encode_mig_profiles(gpu, seat.model)
        if seat.index in profile.mig:
            encode_mig_layout(gpu, seat.model, profile.mig[seat.index])


def encode_mig_layout(gpu: layout.Gpu, model: GpuModel, names: Sequence[str], generation: int = 0) -> None:
    """Switch MIG on and cut the GPU into these instances; another generation gives other UUIDs."""
    gpu.mig_mode = gpu.mig_pending = 1
    for slot in gpu.mig_devices:
        slot.present = 0
    for place in gpu.gpu_instances:
        place.present = 0
    for place, instance in zip(gpu.gpu_instances, plan_layout(model, tuple(names)), strict=False):
        place.present, place.id = 1, instance.gpu_instance_id
        place.profile, place.start = instance.shape.shape.enumerator, instance.start
    for slot, instance in zip(gpu.mig_devices, plan_layout(model, tuple(names)), strict=False):
        _encode_mig_device(slot, gpu, model, instance, generation)


def parse_cpu_list(text: str) -> list[int]:
    """The CPUs of a list such as `0-3,8`, as sysfs writes it."""
    spans = [part.partition("-") for part in text.split(",") if part]
    return list(chain.from_iterable(range(int(first), int(last or first) + 1) for first, _, last in spans))


def _encode_identity(gpu: layout.Gpu, profile: Profile, seat: Seat, node_name: str) -> None:
    model, uuid = seat.model, make_gpu_uuid(profile.name, node_name, seat.index)
    domain, bus, device = seat.address.split(".", maxsplit=1)[0].split(":")
    gpu.present, gpu.lost = 1, 0
    gpu.name, gpu.uuid, gpu.serial = model.name.encode(), uuid.encode(), make_serial(uuid).encode()
    gpu.board_part_number, gpu.vbios_version = model.board_part_number.encode(), model.vbios_version.encode()
    gpu.inforom_version = b"G520.0200.00.05"
    gpu.pci_domain, gpu.pci_bus, gpu.pci_device = int(domain, 16), int(bus, 16), int(device, 16)
    gpu.pci_device_id, gpu.pci_subsystem_id = model.pci.device_id, model.pci.subsystem_id
    gpu.minor = seat.index
    gpu.numa_node = seat.numa_node if seat.numa_node is not None else -1
    gpu.addressing_mode = ADDRESSING[profile.addressing_mode] if profile.addressing_mode else ABSENT_32
    for cpu in parse_cpu_list(seat.cpu_affinity):
        gpu.cpu_mask[cpu // 64] |= 1 << (cpu % 64)
    gpu.brand, gpu.architecture = BRANDS[model.brand], ARCHITECTURES[model.architecture]
    gpu.compute_major, gpu.compute_minor = model.compute_capability
    gpu.sm_count, gpu.core_count = (
        model.multiprocessors,
        model.multiprocessors * (64 if model.compute_capability in {(7, 5), (8, 0)} else 128),
    )
    for other in profile.seats:
        gpu.topology[other.index] = LEVELS[PathKind.SELF if other is seat else find_path(seat, other)]


def _encode_rest(gpu: layout.Gpu, model: GpuModel) -> None:
    """Everything that changes while the card works, as it is when it does not."""
    memory, clocks, thermal, power = model.memory, model.clocks, model.thermal, model.power
    gpu.persistence_mode, gpu.ecc_current, gpu.ecc_pending = 1, 1, 1
    gpu.accounting_buffer = 4000
    gpu.memory_total, gpu.memory_reserved = model.total_bytes, memory.reserved_mib * MIB
    gpu.memory_free = gpu.memory_total - gpu.memory_reserved
    gpu.bar1_total, gpu.bar1_used = memory.bar1_mib * MIB, MIB
    gpu.clock_mhz[:] = [clocks.sm_idle_mhz, clocks.sm_idle_mhz, clocks.memory_idle_mhz, clocks.video_mhz]
    gpu.clock_max_mhz[:] = [clocks.sm_mhz, clocks.sm_mhz, clocks.memory_mhz, clocks.video_mhz]
    gpu.performance_state, gpu.clock_reasons, gpu.clock_reasons_supported = clocks.idle_performance_state, 1, 0x1FF
    gpu.temperature = thermal.idle_celsius
    warm = thermal.memory_maximum_celsius
    gpu.memory_temperature = ABSENT_32 if warm is None else thermal.idle_celsius + 8
    gpu.margin, gpu.margin_known = thermal.slowdown_celsius - thermal.idle_celsius, int(model.has_thermal_margin)
    limits = [thermal.shutdown_celsius, thermal.slowdown_celsius, warm or ABSENT_32, thermal.maximum_celsius]
    gpu.thresholds[:] = [*limits, ABSENT_32, ABSENT_32, ABSENT_32, ABSENT_32]
    gpu.fan_percent = ABSENT_32
    gpu.power_milliwatts, gpu.power_limit_milliwatts = power.idle_watts * 1000, power.limit_watts * 1000
    gpu.power_default_milliwatts, gpu.power_min_milliwatts = power.limit_watts * 1000, power.minimum_watts * 1000
    gpu.power_max_milliwatts, gpu.energy_millijoules = power.limit_watts * 1000, 10**9
    gpu.pcie_generation = gpu.pcie_generation_max = model.pci.generation
    gpu.pcie_width = gpu.pcie_width_max = model.pci.width
    gpu.jpeg_percent = gpu.ofa_percent = 0 if model.compute_capability >= (8, 0) else ABSENT_32
    _encode_wear(gpu, row_remapping=memory.row_remapping)
    is_hopper = model.compute_capability >= HOPPER_CAPABILITY
    gpu.pcie_correctable_count = gpu.pcie_non_fatal_count = gpu.pcie_fatal_count = 0 if is_hopper else ABSENT_64
    gpu.sram_threshold_exceeded = 0 if model.compute_capability >= AMPERE_CAPABILITY else ABSENT_32
    gpu.memory_unrepairable = 0 if is_hopper else ABSENT_32
    gpu.recovery_action = 0
    gpu.events_supported = XID_AND_ECC_EVENTS | (LATER_EVENTS if model.compute_capability >= (8, 0) else 0)
    gpu.gpm_supported = int(model.has_profiling)
    _encode_profiling(gpu.gpm)


def _encode_wear(gpu: layout.Gpu, *, row_remapping: bool) -> None:
    for name in ("remapped_correctable", "remapped_uncorrectable", "remapped_pending", "remapped_failed"):
        setattr(gpu, name, 0 if row_remapping else ABSENT_32)
    for name in ("retired_single_count", "retired_double_count", "retired_pending"):
        setattr(gpu, name, ABSENT_32 if row_remapping else 0)


def _encode_profiling(metrics: Any) -> None:
    for metric in range(layout.GPM_MAX):
        metrics[metric] = 0.0 if metric in PROFILING_METRICS else -1.0


def _encode_links(gpu: layout.Gpu, profile: Profile, seat: Seat) -> None:
    ampere = seat.model.compute_capability[0] == AMPERE
    links = list_nvlinks(profile, seat, lambda index, _link: ampere and index in profile.mig)
    gpu.link_count = len(links)
    for slot, link in zip(gpu.links, links, strict=False):
        slot.present, slot.active = 1, int(link.active)
        slot.remote_type = 2 if link.remote_is_switch else 0
        slot.version, slot.speed_mbps = link.version or 0, link.speed_mbps or 0
        slot.remote_bus_id = f"0000{link.remote.upper()}".encode() if link.remote else b""
        is_fifth = (link.version or 0) >= FIFTH_NVLINK
        for name in ("replay_count", "recovery_count", "crc_flit_count", "crc_data_count"):
            setattr(slot, name, ABSENT_64 if is_fifth else 0)
        slot.fifth[:] = [0 if is_fifth else ABSENT_64] * layout.FIFTH_COUNTERS
        slot.effective_ber = slot.symbol_ber = NO_BIT_ERRORS if is_fifth else ABSENT_64


def _encode_fabric(gpu: layout.Gpu, profile: Profile) -> None:
    gpu.fabric_version_max = 3 if profile.driver.branch >= 570 else 2
    if profile.fabric is None:
        gpu.fabric_state = ABSENT_32
        return
    gpu.fabric_state, gpu.fabric_status = 3, 0
    gpu.fabric_clique, gpu.fabric_health_mask = profile.fabric.clique_id, profile.fabric.health_mask
    gpu.fabric_health_summary = 1
    gpu.fabric_cluster[:] = bytes.fromhex(profile.fabric.cluster_uuid.replace("-", ""))


def _encode_mig_profiles(gpu: layout.Gpu, model: GpuModel) -> None:
    gpu.mig_mode = gpu.mig_pending = 0 if model.mig else ABSENT_32
    gpu.mig_devices_max = gpu.mig_slices = GEOMETRIES[model.mig.geometry].slices if model.mig else 0
    gpu.mig_mode_waits = model.compute_capability[0] == AMPERE
    for item in list_shapes(model):
        slot = gpu.mig_profiles[item.shape.enumerator]
        slot.present, slot.id, slot.slice_count = 1, item.shape.profile_id, item.shape.slices
        slot.instances_max, slot.memory_mib, slot.name = (
            item.shape.instances,
            item.row.memory_mib,
            b"MIG " + item.name.encode(),
        )
        _encode_engines(slot, item)
        slot.placement_count, slot.placement_size = len(item.shape.starts), item.shape.size
        for number, start in enumerate(item.shape.starts):
            slot.placement_starts[number] = start


def _encode_engines(slot: "layout.MigProfile | layout.MigDevice", item: MigShape) -> None:
    row = item.row
    slot.sm_count, slot.copy_engines, slot.decoders = row.multiprocessors, row.copy_engines, row.decoders
    slot.encoders, slot.jpegs, slot.ofas = row.encoders, row.jpeg_engines, row.ofa_engines


def _encode_mig_device(
    slot: layout.MigDevice, gpu: layout.Gpu, model: GpuModel, instance: PlacedInstance, generation: int
) -> None:
    shape, row = instance.shape.shape, instance.shape.row
    slot.present, slot.gpu_instance, slot.compute_instance = 1, instance.gpu_instance_id, 0
    slot.gpu_profile_id, slot.compute_profile_id = shape.profile_id, COMPUTE_PROFILES[shape.slices]
    slot.placement_start, slot.placement_size = instance.start, shape.size
    slot.gpu_slices = slot.compute_slices = shape.slices
    slot.memory_mib = row.memory_mib
    _encode_engines(slot, instance.shape)
    slot.uuid = make_mig_uuid(gpu.uuid.decode(), instance.gpu_instance_id, 0, generation).encode()
    slot.name = f"{model.name} MIG {instance.shape.name}".encode()
    slot.memory_total = row.memory_mib * MIB
    slot.memory_reserved = 16 * MIB
    slot.memory_used, slot.memory_free = 0, slot.memory_total - slot.memory_reserved
    _encode_profiling(slot.gpm)
