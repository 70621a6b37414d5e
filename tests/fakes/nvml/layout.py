"""The shared memory between the fake library and its tests: one ctypes layout, from which the C header is generated.

It owns the meaning of every field.
A number that the hardware does not give is `ABSENT_32` or `ABSENT_64`; the library answers "not supported" for it.
"""

from ctypes import Structure, c_char, c_double, c_int32, c_uint8, c_uint32, c_uint64

GPUS_MAX = 16
LINKS_MAX = 36
MIG_MAX = 8
MIG_PROFILES_MAX = 18
PLACEMENTS_MAX = 16
PROCESSES_MAX = 32
RETIRED_MAX = 64
FIELDS_MAX = 320
GPM_MAX = 64
EVENTS_MAX = 256
FUNCTIONS_MAX = 180
FIFTH_COUNTERS = 12
ANY_GPU = GPUS_MAX
"""The fault slot for calls on any GPU, or on none."""

ABSENT_32 = 0xFFFFFFFF
ABSENT_64 = 0xFFFFFFFFFFFFFFFF


class Fault(Structure):
    """What one function does instead of its work, for one GPU or for all."""

    _fields_ = (
        ("calls", c_uint64),
        ("delay_nanoseconds", c_uint64),
        ("code", c_uint32),  # 0: do the work
        ("left", c_uint32),  # how many more calls answer `code`; 0: all
        ("hangs", c_uint32),  # until cleared, signals blocked
        ("kill_signal", c_uint32),  # raised inside the call, as a crash would
    )


class Function(Structure):
    _fields_ = (("name", c_char * 80), ("faults", Fault * (GPUS_MAX + 1)))


class Process(Structure):
    _fields_ = (
        ("pid", c_uint32),
        ("kind", c_uint32),  # 0 compute, 1 graphics, 2 MPS client
        ("used_bytes", c_uint64),
        ("gpu_instance", c_uint32),
        ("compute_instance", c_uint32),
        ("sm_percent", c_uint32),
        ("memory_percent", c_uint32),
        ("encoder_percent", c_uint32),
        ("decoder_percent", c_uint32),
        ("jpeg_percent", c_uint32),
        ("ofa_percent", c_uint32),
        ("timestamp_microseconds", c_uint64),  # 0: this process has no utilisation sample
    )


class Link(Structure):
    """One NVLink; `present` counts the link, `active` says whether it is up."""

    _fields_ = (
        ("present", c_uint32),
        ("active", c_uint32),
        ("remote_type", c_uint32),  # 0 GPU, 1 NPU, 2 switch, 255 unknown
        ("version", c_uint32),
        ("speed_mbps", c_uint32),
        ("remote_bus_id", c_char * 32),
        ("transmit_kib", c_uint64),
        ("receive_kib", c_uint64),
        ("replay_count", c_uint64),
        ("recovery_count", c_uint64),
        ("crc_flit_count", c_uint64),
        ("crc_data_count", c_uint64),
        ("fifth", c_uint64 * FIFTH_COUNTERS),  # ABSENT_64 before NVLink 5, from which on those above are
        ("effective_ber", c_uint64),  # packed as NVML does; ABSENT_64 likewise
        ("symbol_ber", c_uint64),
    )


class GpuInstance(Structure):
    """One GPU instance, with or without a compute instance in it."""

    _fields_ = (
        ("present", c_uint32),
        ("id", c_uint32),
        ("profile", c_uint32),  # the enumerator: a place in `mig_profiles`
        ("start", c_uint32),
    )


class MigDevice(Structure):
    """One compute instance of one GPU instance."""

    _fields_ = (
        ("present", c_uint32),
        ("gpu_instance", c_uint32),
        ("compute_instance", c_uint32),
        ("gpu_profile_id", c_uint32),
        ("compute_profile_id", c_uint32),
        ("placement_start", c_uint32),
        ("placement_size", c_uint32),
        ("sm_count", c_uint32),
        ("copy_engines", c_uint32),
        ("decoders", c_uint32),
        ("encoders", c_uint32),
        ("jpegs", c_uint32),
        ("ofas", c_uint32),
        ("gpu_slices", c_uint32),
        ("compute_slices", c_uint32),
        ("memory_mib", c_uint64),
        ("uuid", c_char * 96),
        ("name", c_char * 96),
        ("memory_total", c_uint64),
        ("memory_used", c_uint64),
        ("memory_free", c_uint64),
        ("memory_reserved", c_uint64),
        ("gpm", c_double * GPM_MAX),
    )


class MigProfile(Structure):
    """A GPU instance profile; its place in the array is NVML's enumerator."""

    _fields_ = (
        ("present", c_uint32),
        ("id", c_uint32),
        ("slice_count", c_uint32),
        ("instances_max", c_uint32),
        ("sm_count", c_uint32),
        ("copy_engines", c_uint32),
        ("decoders", c_uint32),
        ("encoders", c_uint32),
        ("jpegs", c_uint32),
        ("ofas", c_uint32),
        ("memory_mib", c_uint64),
        ("name", c_char * 96),
        ("placement_count", c_uint32),
        ("placement_size", c_uint32),
        ("placement_starts", c_uint32 * PLACEMENTS_MAX),
    )


class Gpu(Structure):
    """One physical GPU; its place in the array is stable, its NVML index counts the present ones before it."""

    _fields_ = (
        ("present", c_uint32),
        ("lost", c_uint32),
        ("epoch", c_uint32),  # raised by a reset: handles and GPM samples from before are invalid
        ("name", c_char * 96),
        ("uuid", c_char * 96),
        ("serial", c_char * 32),
        ("board_part_number", c_char * 80),
        ("vbios_version", c_char * 32),
        ("inforom_version", c_char * 16),
        ("pci_domain", c_uint32),
        ("pci_bus", c_uint32),
        ("pci_device", c_uint32),
        ("pci_device_id", c_uint32),
        ("pci_subsystem_id", c_uint32),
        ("minor", c_uint32),
        ("numa_node", c_int32),  # -1: not supported
        ("cpu_mask", c_uint64 * 16),
        ("brand", c_uint32),
        ("architecture", c_uint32),
        ("compute_major", c_uint32),
        ("compute_minor", c_uint32),
        ("sm_count", c_uint32),
        ("core_count", c_uint32),
        ("persistence_mode", c_uint32),
        ("compute_mode", c_uint32),
        ("ecc_current", c_uint32),
        ("ecc_pending", c_uint32),
        ("virtualization_mode", c_uint32),
        ("addressing_mode", c_uint32),
        ("accounting_mode", c_uint32),
        ("accounting_buffer", c_uint32),
        ("topology", c_uint32 * GPUS_MAX),
        ("p2p", c_uint32 * GPUS_MAX),
        # what changes each second
        ("gpu_percent", c_uint32),
        ("memory_percent", c_uint32),
        ("encoder_percent", c_uint32),
        ("decoder_percent", c_uint32),
        ("jpeg_percent", c_uint32),
        ("ofa_percent", c_uint32),
        ("memory_total", c_uint64),
        ("memory_used", c_uint64),
        ("memory_free", c_uint64),
        ("memory_reserved", c_uint64),
        ("bar1_total", c_uint64),
        ("bar1_used", c_uint64),
        ("clock_mhz", c_uint32 * 4),  # graphics, SM, memory, video
        ("clock_max_mhz", c_uint32 * 4),
        ("performance_state", c_uint32),
        ("clock_reasons", c_uint64),
        ("clock_reasons_supported", c_uint64),
        ("temperature", c_uint32),
        ("memory_temperature", c_uint32),
        ("margin", c_int32),
        ("margin_known", c_uint32),
        ("thresholds", c_uint32 * 8),
        ("fan_percent", c_uint32),
        ("power_milliwatts", c_uint32),
        ("power_limit_milliwatts", c_uint32),
        ("power_default_milliwatts", c_uint32),
        ("power_min_milliwatts", c_uint32),
        ("power_max_milliwatts", c_uint32),
        ("energy_millijoules", c_uint64),
        (
            "violation_nanoseconds",
            c_uint64 * 8,
        ),  # NVML's perf policies: power, thermal, sync boost, board, util, reliability
        ("pcie_generation", c_uint32),
        ("pcie_width", c_uint32),
        ("pcie_generation_max", c_uint32),
        ("pcie_width_max", c_uint32),
        ("pcie_replay_count", c_uint32),
        ("pcie_throughput_kb", c_uint32 * 2),  # transmit, receive
        ("pcie_bytes", c_uint64 * 2),
        ("pcie_correctable_count", c_uint64),
        ("pcie_non_fatal_count", c_uint64),
        ("pcie_fatal_count", c_uint64),
        ("inforom_corrupt", c_uint32),
        ("memory_unrepairable", c_uint32),
        ("ecc_corrected_volatile", c_uint64),
        ("ecc_uncorrected_volatile", c_uint64),
        ("ecc_corrected_aggregate", c_uint64),
        ("ecc_uncorrected_aggregate", c_uint64),
        ("sram_threshold_exceeded", c_uint32),
        ("retired_single_count", c_uint32),  # ABSENT_32: the board remaps rows instead
        ("retired_double_count", c_uint32),
        ("retired_pending", c_uint32),
        ("remapped_correctable", c_uint32),  # ABSENT_32: the board retires pages instead
        ("remapped_uncorrectable", c_uint32),
        ("remapped_pending", c_uint32),
        ("remapped_failed", c_uint32),
        ("recovery_action", c_uint32),
        ("fabric_state", c_uint32),  # ABSENT_32: no fabric on this board
        ("fabric_status", c_uint32),
        ("fabric_clique", c_uint32),
        ("fabric_health_mask", c_uint32),
        ("fabric_health_summary", c_uint32),
        ("fabric_version_max", c_uint32),
        ("fabric_cluster", c_uint8 * 16),
        ("license_supported", c_uint32),
        ("license_active", c_uint32),
        ("vgpu_count", c_uint32),
        ("events_supported", c_uint64),
        ("gpm_supported", c_uint32),
        ("gpm", c_double * GPM_MAX),
        ("field_codes", c_uint32 * FIELDS_MAX),  # an item's own return code, 0: as the state says
        ("link_count", c_uint32),
        ("links", Link * LINKS_MAX),
        ("process_count", c_uint32),
        ("processes", Process * PROCESSES_MAX),
        ("mig_mode", c_uint32),  # ABSENT_32: not capable
        ("mig_pending", c_uint32),
        ("mig_devices_max", c_uint32),
        ("mig_mode_waits", c_uint32),  # for a reset, as before Hopper
        ("mig_slices", c_uint32),  # of compute
        ("mig_serial", c_uint32),  # raised by each change: no two instances have one UUID
        ("gpu_instances", GpuInstance * MIG_MAX),
        ("mig_devices", MigDevice * MIG_MAX),
        ("mig_profiles", MigProfile * MIG_PROFILES_MAX),
    )


class Event(Structure):
    _fields_ = (
        ("gpu", c_uint32),
        ("gpu_instance", c_uint32),
        ("compute_instance", c_uint32),
        ("wait_code", c_uint32),  # not 0: the wait itself ends with this code, once
        ("type", c_uint64),
        ("data", c_uint64),
    )


class State(Structure):
    """All of it. `event_head` only grows; event number n lies at n modulo `EVENTS_MAX`."""

    _fields_ = (
        ("layout_size", c_uint64),
        ("function_count", c_uint32),
        ("driver_version", c_char * 80),
        ("nvml_version", c_char * 80),
        ("cuda_version", c_uint32),
        ("confidential_compute", c_uint32),
        ("lists_at_start", c_uint32),  # GPUs that are plugged in later are seen by the next process only
        ("event_head", c_uint64),
        ("events", Event * EVENTS_MAX),
        ("gpus", Gpu * GPUS_MAX),
        ("functions", Function * FUNCTIONS_MAX),
    )


STRUCTURES = (Fault, Function, Process, Link, GpuInstance, MigDevice, MigProfile, Gpu, Event, State)

# Field id → member of Gpu that holds the value, and NVML's value type (1 unsigned int, 3 unsigned long long).
FIELDS: dict[int, tuple[str, int]] = {
    1: ("ecc_current", 1),
    2: ("ecc_pending", 1),
    3: ("ecc_corrected_volatile", 3),
    4: ("ecc_uncorrected_volatile", 3),
    5: ("ecc_corrected_aggregate", 3),
    6: ("ecc_uncorrected_aggregate", 3),
    29: ("retired_single_count", 1),
    30: ("retired_double_count", 1),
    31: ("retired_pending", 1),
    74: ("violation_nanoseconds[0]", 3),
    75: ("violation_nanoseconds[1]", 3),
    76: ("violation_nanoseconds[2]", 3),
    77: ("violation_nanoseconds[3]", 3),
    78: ("violation_nanoseconds[4]", 3),
    79: ("violation_nanoseconds[5]", 3),
    82: ("memory_temperature", 1),
    83: ("energy_millijoules", 3),
    94: ("pcie_replay_count", 1),
    142: ("remapped_correctable", 1),
    143: ("remapped_uncorrectable", 1),
    144: ("remapped_pending", 1),
    145: ("remapped_failed", 1),
    173: ("pcie_correctable_count", 3),
    179: ("pcie_non_fatal_count", 3),
    180: ("pcie_fatal_count", 3),
    185: ("power_milliwatts", 1),
    186: ("power_milliwatts", 1),
    187: ("power_min_milliwatts", 1),
    188: ("power_max_milliwatts", 1),
    189: ("power_default_milliwatts", 1),
    190: ("power_limit_milliwatts", 1),
    197: ("pcie_bytes[0]", 3),
    198: ("pcie_bytes[1]", 3),
    230: ("recovery_action", 1),
}

# Field id → member of Link, value type; asked with a link number as scope, or summed over all links.
LINK_FIELDS: dict[int, tuple[str, int]] = {
    38: ("crc_flit_count", 3),
    45: ("crc_data_count", 3),
    52: ("replay_count", 3),
    59: ("recovery_count", 3),
    138: ("transmit_kib", 3),
    139: ("receive_kib", 3),
    161: ("replay_count", 3),
    162: ("recovery_count", 3),
    163: ("crc_flit_count", 3),
    164: ("speed_mbps", 1),
    165: ("active", 1),
    166: ("version", 1),
    **{
        field: (f"fifth[{place}]", 3)
        for place, field in enumerate((206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 219, 221))
    },
    220: ("effective_ber", 3),
    222: ("symbol_ber", 3),
}
