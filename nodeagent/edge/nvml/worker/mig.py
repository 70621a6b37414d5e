"""MIG state: the mode, present devices, possible profiles.

Runs in the worker process. Owns the name of a profile without a name of the driver's.
Refuses changes: `partition`, in another process, creates and destroys instances.
"""

import ctypes

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.query import Query

_SUFFIXES = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
"""What follows the size, by NVML's enumerator of GPU instance profiles."""

_MIB = 1048576
_UNSUPPORTED_ENUMERATORS = frozenset({errors.NOT_SUPPORTED, errors.INVALID_ARGUMENT})


def read_mig(query: Query, total_bytes: int, gpu_uuid: str) -> dict[str, Any] | None:
    """The GPU's MIG state; `None` for hardware without MIG."""
    mode = query.ask("mig mode", "nvmlDeviceGetMigMode")
    if mode is None:
        return None
    enabled, pending = bool(mode[0]), bool(mode[1])
    profiles = read_profiles(query, total_bytes, enabled=enabled)
    count = query.ask("mig device count", "nvmlDeviceGetMaxMigDeviceCount", default=0)
    suffixes = {profile["profile_id"]: profile.pop("suffix") for profile in profiles}
    reader = _DeviceReader(query, gpu_uuid, total_bytes, suffixes)
    devices = [reader.read(index, handle) for index, handle in list_mig_handles(query, count)] if enabled else []
    return {
        "enabled": enabled,
        "pending": pending,
        "devices": [device for device in devices if device is not None],
        "profiles": profiles,
        "devices_max": count,
    }


def list_mig_handles(query: Query, count: int) -> list[tuple[int, Any]]:
    """Present MIG devices by index; indices have holes."""
    found = []
    for index in range(count):
        code, handle = query.attempt_of(query.handle, "nvmlDeviceGetMigDeviceHandleByIndex", index)
        if code == errors.SUCCESS:
            found.append((index, handle))
        elif code != errors.INVALID_ARGUMENT:  # by which some drivers say that there is none of this index
            query.mark(f"mig device {index}", code)
    return found


def read_mig_identity(query: Query, index: int, handle: Any) -> tuple[str, int, int] | None:
    """UUID, GPU instance and compute instance of a MIG device; `None` and a mark where any cannot be read."""
    what = f"mig device {index}"
    uuid = query.ask_of(handle, what, "nvmlDeviceGetUUID")
    instance = query.ask_of(handle, what, "nvmlDeviceGetGpuInstanceId")
    compute = query.ask_of(handle, what, "nvmlDeviceGetComputeInstanceId")
    return None if uuid is None or instance is None or compute is None else (uuid, instance, compute)


def render_profile_name(compute_slices: int, gpu_slices: int, memory_mib: int, total_bytes: int, suffix: str) -> str:
    """`1g.10gb`: the memory in eighths of the whole, rounded up; halves away from zero. `total_bytes` must be known."""
    eighths = _divide_up(8 * memory_mib * _MIB, total_bytes)
    gigabytes = (eighths * _divide_up(total_bytes, 1024**3) + 4) // 8
    shared = "" if compute_slices == gpu_slices else f"{compute_slices}c."
    return f"{shared}{gpu_slices}g.{gigabytes}gb{suffix}"


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


class _DeviceReader:
    """Reads the MIG devices of one GPU."""

    def __init__(self, query: Query, gpu_uuid: str, total_bytes: int, suffixes: dict[int, str]) -> None:
        self._query, self._gpu_uuid = query, gpu_uuid
        self._total_bytes, self._suffixes = total_bytes, suffixes

    def read(self, index: int, handle: Any) -> dict[str, Any] | None:
        """One MIG device; `None` and a mark if its identity cannot be read."""
        query, what = self._query, f"mig device {index}"
        identity = read_mig_identity(query, index, handle)
        attributes = query.ask_of(handle, what, "nvmlDeviceGetAttributes_v2")
        if identity is None or attributes is None:
            return None
        uuid, instance, compute = identity
        place = self._read_place(instance)
        profile = self._name(handle, attributes, place)
        if not profile:
            query.mark(f"profile of {what}", errors.UNINTELLIGIBLE)
            return None
        device = {
            "uuid": uuid,
            "parent": self._gpu_uuid,
            "index": index,
            "gpu_instance_id": instance,
            "compute_instance_id": compute,
            "profile": profile,
            "attributes": _render_attributes(attributes),
        }
        if place is not None:
            device["placement_start"], device["placement_size"] = place.placement.start, place.placement.size
        return device

    def _read_place(self, instance: int) -> Any:
        """The GPU instance's placement; absent without fault where the agent lacks the privilege."""
        code, found = self._query.attempt_of(self._query.handle, "nvmlDeviceGetGpuInstanceById", instance)
        if code != errors.SUCCESS:
            return None
        code, place = self._query.attempt_of(found, "nvmlGpuInstanceGetInfo")
        return place if code == errors.SUCCESS else None

    def _name(self, handle: Any, attributes: Any, place: Any) -> str:
        """The profile at the end of the driver's device name, else computed, else `None`: a wrong name is worse."""
        code, name = self._query.attempt_of(handle, "nvmlDeviceGetName")
        if code == errors.SUCCESS and " MIG " in name:
            return str(name.rpartition(" MIG ")[2])
        if not self._total_bytes:
            return ""
        return render_profile_name(
            attributes.computeInstanceSliceCount,
            attributes.gpuInstanceSliceCount,
            attributes.memorySizeMB,
            self._total_bytes,
            self._suffixes.get(place.profileId, "") if place is not None else "",
        )


def _render_attributes(attributes: Any) -> dict[str, int]:
    return {
        "multiprocessor_count": attributes.multiprocessorCount,
        "gpu_instance_slice_count": attributes.gpuInstanceSliceCount,
        "compute_instance_slice_count": attributes.computeInstanceSliceCount,
        "memory_mib": attributes.memorySizeMB,
        "shared_copy_engine_count": attributes.sharedCopyEngineCount,
        "shared_decoder_count": attributes.sharedDecoderCount,
        "shared_encoder_count": attributes.sharedEncoderCount,
        "shared_jpeg_count": attributes.sharedJpegCount,
        "shared_ofa_count": attributes.sharedOfaCount,
    }


def read_profiles(query: Query, total_bytes: int, *, enabled: bool) -> list[dict[str, Any]]:
    """The MIG profiles of a GPU, each with the suffix of the name; placements only in MIG mode."""
    profiles = []
    for enumerator in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        code, info = _read_profile(query, enumerator)
        if code != errors.SUCCESS:
            if code not in _UNSUPPORTED_ENUMERATORS:
                query.mark(f"mig profile {enumerator}", code)
            continue
        suffix = _SUFFIXES.get(enumerator, "")
        name = _name_profile(info, total_bytes, suffix)
        if not name:
            query.mark(f"name of mig profile {enumerator}", errors.UNINTELLIGIBLE)
            continue
        profile = {
            "name": name,
            "profile_id": info.id,
            "slice_count": info.sliceCount,
            "memory_mib": info.memorySizeMB,
            "multiprocessor_count": info.multiprocessorCount,
            "instances_max": info.instanceCount,
            "copy_engine_count": info.copyEngineCount,
            "decoder_count": info.decoderCount,
            "encoder_count": info.encoderCount,
            "jpeg_count": info.jpegCount,
            "ofa_count": info.ofaCount,
            "suffix": suffix,
        }
        if enabled:
            profile.update(_read_placements(query, info.id))
        profiles.append(profile)
    return profiles


def _name_profile(info: Any, total_bytes: int, suffix: str) -> str:
    """The profile's name by the driver, spelled as for devices; else computed, else `None`."""
    spoken = getattr(info, "name", "").removeprefix("MIG ")
    if spoken or not total_bytes:
        return str(spoken)
    return render_profile_name(info.sliceCount, info.sliceCount, info.memorySizeMB, total_bytes, suffix)


def _read_profile(query: Query, enumerator: int) -> tuple[int, Any]:
    code, info = query.attempt_of(query.handle, "nvmlDeviceGetGpuInstanceProfileInfo", enumerator)
    if code in (errors.FUNCTION_NOT_FOUND, errors.ARGUMENT_VERSION_MISMATCH):
        return query.attempt_of(query.handle, "nvmlDeviceGetGpuInstanceProfileInfo", enumerator, 1)
    return code, info


def _read_placements(query: Query, profile_id: int) -> dict[str, Any]:
    """Possible starts of an instance, occupied or not; a privileged call, silently left out."""
    function, count = "nvmlDeviceGetGpuInstancePossiblePlacements", ctypes.c_uint(0)
    code, _ = query.attempt_of(query.handle, function, profile_id, None, ctypes.byref(count))
    if code != errors.SUCCESS or not count.value:
        return {}
    places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    code, _ = query.attempt_of(query.handle, function, profile_id, places, ctypes.byref(count))
    if code != errors.SUCCESS or not count.value:
        return {}
    starts = sorted(place.start for place in places[: count.value])
    return {"placements": starts, "placement_size": places[0].size}
