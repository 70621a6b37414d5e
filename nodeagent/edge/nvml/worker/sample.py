"""One sample of one GPU, in at most sixty library calls also on a fully partitioned GPU.

Runs in the worker process and returns the fields of `model.telemetry.GpuSample` by name, without readings that the
hardware lacks. Owns the memory between two samples of a GPU: counters' buffers and the list of MIG devices.
"""

import ctypes

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.aer import AerReader
from nodeagent.edge.nvml.worker.extras import ExtraReader
from nodeagent.edge.nvml.worker.fabric import read_fabric
from nodeagent.edge.nvml.worker.fields import FieldReader, read_link_count
from nodeagent.edge.nvml.worker.gpm import Profiler
from nodeagent.edge.nvml.worker.mig import list_mig_handles, read_mig_identity
from nodeagent.edge.nvml.worker.processes import read_gpu_processes, read_mig_processes
from nodeagent.edge.nvml.worker.query import GpuGone, Query, call, put

_PLAUSIBLE_CELSIUS = 200
_VGPU_GUEST = 2
_LICENSED_FEATURE = 1

# pynvml function, its arguments → name in the model, for what can be taken as it comes
_SWIFT: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,), "sm_clock_mhz"),
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_MEM,), "memory_clock_mhz"),
    ("nvmlDeviceGetPerformanceState", (), "performance_state"),
    ("nvmlDeviceGetPowerUsage", (), "power_milliwatts"),
)
_LEVELS: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_VIDEO,), "video_clock_mhz"),
    ("nvmlDeviceGetMarginTemperature", (), "slowdown_margin_celsius"),
    ("nvmlDeviceGetFanSpeed", (), "fan_speed_percent"),
    ("nvmlDeviceGetEnforcedPowerLimit", (), "power_limit_milliwatts"),
    ("nvmlDeviceGetCurrPcieLinkGeneration", (), "pcie_generation"),
    ("nvmlDeviceGetCurrPcieLinkWidth", (), "pcie_width"),
)
_FIRST_OF_PAIR = (
    ("nvmlDeviceGetEncoderUtilization", "encoder_utilization_percent"),
    ("nvmlDeviceGetDecoderUtilization", "decoder_utilization_percent"),
    ("nvmlDeviceGetJpgUtilization", "jpeg_utilization_percent"),
    ("nvmlDeviceGetOfaUtilization", "ofa_utilization_percent"),
)


class MigEntity:
    """One MIG device of the last enumeration."""

    def __init__(self, handle: Any, uuid: str, gpu_instance: int, compute_instance: int) -> None:
        self.handle, self.uuid = handle, uuid
        self.gpu_instance, self.compute_instance = gpu_instance, compute_instance


class Sampler:
    """Samples one GPU, over and over."""

    def __init__(self, handle: Any, pci_directory: str = "") -> None:
        self._handle, self._aer = handle, AerReader(pci_directory)
        self._hopeless: dict[Any, int] = {}
        self._profilers: dict[int | None, Profiler] = {}
        self._newest_process_sample = 0
        self._mig: list[MigEntity] | None = None
        self._mig_processes: dict[str, list[dict[str, Any]]] = {}
        self._fields: FieldReader | None = None
        self._levels: dict[str, Any] | None = None
        self._level_marks: list[dict[str, str]] = []
        self._can_profile: bool | None = None
        self._extras: Any = None
        self._is_guest = self._is_unsure = False
        self._has_answered = False
        self.is_stale = False
        """The handle was good once and is not any more: the GPU was reset, only a new process can open it anew."""

    def forget(self) -> None:
        """Ask for all facts anew: the GPU may have changed."""
        self._hopeless.clear()
        self._mig = self._fields = self._levels = self._can_profile = None
        self._close_extras()

    def close(self) -> None:
        """Free the library's buffers."""
        for profiler in self._profilers.values():
            profiler.close()
        self._profilers.clear()
        self._close_extras()

    def read(self, *, whole: bool = True, extras: tuple[str, ...] = ()) -> tuple[dict[str, Any], int]:
        """The sample, and the number of library calls.

        Unless `whole`, the levels (slow readings) are from the last whole sample. `extras` names readings beside the
        ordinary sample.
        """
        query = Query(self._handle, self._hopeless)
        sample: dict[str, Any] = {}
        try:
            self._learn(query)
            if whole or self._levels is None:
                self._read_levels(query)
            assert self._levels is not None
            sample.update(self._levels)
            self._read_swift(query, sample)
            if extras:
                sample["extras"] = self._read_extras(query, extras)
        except GpuGone as gone:
            sample, self._levels = {"lost": str(gone)}, None
            self.close()
        self._judge_handle(query)
        if self._is_unsure:
            self._mig = self._fields = self._levels = None
        sample["unreadable"] = query.unreadable
        return sample, query.calls

    def _read_extras(self, query: Query, names: tuple[str, ...]) -> dict[str, float]:
        if self._extras is None or names != self._extras.names:
            self._close_extras()
            self._extras = ExtraReader(names)
        values: dict[str, float] = self._extras.read(query, can_profile=bool(self._can_profile))
        return values

    def _close_extras(self) -> None:
        if self._extras is not None:
            self._extras.close()
            self._extras = None

    def _judge_handle(self, query: Query) -> None:
        """Check the handle by a cached answer, which fails for an invalid handle alone."""
        if not query.unreadable and self._has_answered:
            return
        code, _ = call("nvmlDeviceGetUUID", self._handle)
        query.calls += 1
        self.is_stale = self._has_answered and code == errors.INVALID_ARGUMENT
        self._has_answered = self._has_answered or code == errors.SUCCESS

    def _read_swift(self, query: Query, sample: dict[str, Any]) -> None:
        assert self._fields is not None
        sample.update(self._fields.read_swift(query))
        _read_load(query, sample)
        sample.update(_read_memory(query, query.handle, "memory"))
        for function, arguments, name in _SWIFT:
            put(sample, name, query.ask(name, function, *arguments))
        put(sample, "clock_event_reasons", _read_clock_reasons(query))
        _read_temperature(query, sample)
        put(sample, "profiling", self._read_profiling(query, None))
        if self._mig:
            marks = len(query.unreadable)
            sample["mig"] = [self._read_mig(query, entity) for entity in self._mig]
            # A device that cannot be read may be one that is no more: list them again next time.
            self._is_unsure = self._is_unsure or len(query.unreadable) > marks
        query.unreadable += self._level_marks

    def _read_levels(self, query: Query) -> None:
        """Readings that move slowly, or matter only over minutes."""
        assert self._fields is not None
        before, query.unreadable = query.unreadable, []
        levels = self._fields.read_levels(query)
        _read_window(query, levels)
        for function, arguments, name in _LEVELS:
            put(levels, name, query.ask(name, function, *arguments))
        put(levels, "sram_threshold_exceeded", _read_sram_threshold(query))
        put(levels, "memory_unrepairable", read_unrepairable(query))
        fabric = read_fabric(query)
        if fabric is not None:
            levels["fabric_health_mask"], levels["fabric_health_summary"] = (
                fabric["health_mask"],
                fabric["health_summary"],
            )
        put(levels, "vgpu_license_active", _read_license(query) if self._is_guest else False)
        levels.update(self._aer.read())
        if self._mig:
            self._mig_processes = {entity.uuid: read_mig_processes(query, entity.handle) for entity in self._mig}
        else:
            levels["processes"], self._newest_process_sample = read_gpu_processes(query, self._newest_process_sample)
        self._levels, self._level_marks, query.unreadable = levels, query.unreadable, before

    def _learn(self, query: Query) -> None:
        """Learn which questions make sense: once after each enumeration, again after a failed reading."""
        marks = len(query.unreadable)
        if self._fields is None:
            self._fields = FieldReader(read_link_count(query))
            mode = query.ask("virtualization_mode", "nvmlDeviceGetVirtualizationMode", default=0)
            self._is_guest = mode == _VGPU_GUEST
        if self._mig is None:
            self._mig = _list_mig(query)
            instances = {entity.gpu_instance for entity in self._mig}
            for instance in [known for known in self._profilers if known is not None and known not in instances]:
                self._profilers.pop(instance).close()
        self._is_unsure = len(query.unreadable) > marks

    def _read_profiling(self, query: Query, instance: int | None) -> dict[str, float] | None:
        if self._can_profile is None:
            support = query.ask("profiling", "nvmlGpmQueryDeviceSupport")
            self._can_profile = None if support is None else support.isSupportedDevice == 1
        if not self._can_profile:
            return None
        profiler = self._profilers.get(instance)
        if profiler is None:
            profiler = self._profilers[instance] = Profiler(instance)
        return profiler.read(query)

    def _read_mig(self, query: Query, entity: MigEntity) -> dict[str, Any]:
        share: dict[str, Any] = {
            "uuid": entity.uuid,
            "gpu_instance_id": entity.gpu_instance,
            "compute_instance_id": entity.compute_instance,
        }
        share.update(_read_memory(query, entity.handle, "mig memory"))
        put(share, "profiling", self._read_profiling(query, entity.gpu_instance))
        share["processes"] = self._mig_processes.get(entity.uuid, [])
        return share


def _list_mig(query: Query) -> list[MigEntity]:
    mode = query.ask("mig mode", "nvmlDeviceGetMigMode")
    if mode is None or mode[0] != 1:
        return []
    count = query.ask("mig device count", "nvmlDeviceGetMaxMigDeviceCount", default=0)
    entities = []
    for index, handle in list_mig_handles(query, count):
        identity = read_mig_identity(query, index, handle)
        if identity is not None:
            entities.append(MigEntity(handle, *identity))
    return entities


def _read_load(query: Query, sample: dict[str, Any]) -> None:
    rates = query.ask("gpu_utilization_percent", "nvmlDeviceGetUtilizationRates")
    if rates is not None:
        sample["gpu_utilization_percent"], sample["memory_utilization_percent"] = rates.gpu, rates.memory
    for function, name in _FIRST_OF_PAIR:
        pair = query.ask(name, function)
        put(sample, name, None if pair is None else pair[0])


def _read_memory(query: Query, handle: Any, what: str) -> dict[str, int]:
    """Memory by version 2, with reserved apart from used, or by version 1 on old drivers, with both in one number."""
    code, memory = query.attempt_of(handle, "nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2)
    if code:
        memory = query.ask_of(handle, what, "nvmlDeviceGetMemoryInfo")
    return {} if memory is None else _render_memory(memory)


def _read_sram_threshold(query: Query) -> bool | None:
    """Whether uncorrectable errors in the caches call for a replacement of the board."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    answer = query.ask("sram_threshold_exceeded", "nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status))
    return None if answer is None else status.bThresholdExceeded == 1


def read_unrepairable(query: Query) -> bool | None:
    """Past the binding, whose structure has a version in front of the flag; NVIDIA's header has the flag alone.

    Where the version still stands after the call, the library goes by the binding's structure.
    """
    words = (ctypes.c_uint * 2)(pynvml.nvmlUnrepairableMemory_v1, 0)
    if not query.fill("nvmlDeviceGetUnrepairableMemoryFlag_v1", "memory_unrepairable", ctypes.byref(words)):
        return None
    return (words[1] if words[0] == pynvml.nvmlUnrepairableMemory_v1 else words[0]) == 1


def _read_window(query: Query, sample: dict[str, Any]) -> None:
    window = query.ask("bar1", "nvmlDeviceGetBAR1MemoryInfo")
    if window is not None:
        sample["bar1_total_bytes"], sample["bar1_used_bytes"] = window.bar1Total, window.bar1Used


def _render_memory(memory: Any) -> dict[str, int]:
    values = {
        "memory_total_bytes": memory.total,
        "memory_used_bytes": memory.used,
        "memory_free_bytes": memory.free,
    }
    if hasattr(memory, "reserved"):
        values["memory_reserved_bytes"] = memory.reserved
    return values


def _read_clock_reasons(query: Query) -> int | None:
    """Throttle reasons by the newer name of the call, or by the older name."""
    code, reasons = query.attempt_of(query.handle, "nvmlDeviceGetCurrentClocksEventReasons")
    if code:
        reasons = query.ask("clock_event_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return None if reasons is None else int(reasons)


def _read_temperature(query: Query, sample: dict[str, Any]) -> None:
    celsius = query.ask("gpu_temperature_celsius", "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU)
    if celsius is not None and celsius <= _PLAUSIBLE_CELSIUS:
        sample["gpu_temperature_celsius"] = celsius


def _read_license(query: Query) -> bool | None:
    features = query.ask("vgpu_license_active", "nvmlDeviceGetGridLicensableFeatures_v4")
    if features is None:
        return None
    listed = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return bool(features.isGridLicenseSupported) and any(
        feature.featureCode == _LICENSED_FEATURE and feature.featureState > 0 for feature in listed
    )
