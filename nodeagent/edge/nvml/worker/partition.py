"""The worker process for changes: cuts GPUs, and sets compute modes. Started for a change and ended after the change.

Runs in a separate process, because one call may take seconds, and because the reading worker must not be able to write.
Owns the handles of instances during the change, and NVML's description of instances.
Refuses decisions: the agent decides on the next call, and each answer is the driver's.
"""

import ctypes
import os
import subprocess

import pynvml

from nodeagent.core.children.child_setup import claim_answers, die_with_parent
from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.main import CallFailed, Worker
from nodeagent.edge.nvml.worker.mig import read_profiles
from nodeagent.edge.nvml.worker.query import Query, call

_INSTANCES_MAX = 32
_NEWEST = -1
_SHARED_ENGINES = 0
_FIRST_VERSION = 1
_OUTPUT_SHOWN = 300


class Partitioner(Worker):
    """Answers requests about the partitions of one GPU at a time."""

    def __init__(self, root: str, configured: str, answers: int) -> None:
        super().__init__(root, configured, answers)
        self._newest: Any = None
        """The GPU instance that was made last."""

    def do_partitions(self, gpu: str, uuid: str) -> dict[str, Any]:
        """All instances on a GPU, and the GPU's profiles."""
        handle = self._open_device(gpu, uuid).handle
        enabled, pending = self._must("nvmlDeviceGetMigMode", handle)
        _, memory = call("nvmlDeviceGetMemoryInfo", handle)
        total = 0 if memory is None else int(memory.total)
        profiles = read_profiles(Query(handle, {}), total, enabled=bool(enabled))
        for profile in profiles:
            del profile["suffix"]
        found = [self._read_instances(handle, profile["profile_id"]) for profile in profiles] if enabled else []
        instances = sorted((one for group in found for one in group), key=_id_of)
        return {
            "enabled": bool(enabled),
            "pending": bool(pending),
            "instances": instances,
            "profiles": profiles,
            "memory_bytes": total,
        }

    def _read_instances(self, handle: Any, profile_id: int) -> list[dict[str, Any]]:
        instances = []
        for instance in self._list("nvmlDeviceGetGpuInstances", pynvml.c_nvmlGpuInstance_t, handle, profile_id):
            info = self._must("nvmlGpuInstanceGetInfo", instance)
            computes = sorted(self._read_computes(instance), key=_id_of)
            place = info.placement
            instances.append(
                {
                    "id": info.id,
                    "profile_id": profile_id,
                    "start": place.start,
                    "size": place.size,
                    "computes": computes,
                }
            )
        return instances

    def _read_computes(self, instance: Any) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for profile_id, slices in self._list_compute_profiles(instance):
            computes = self._list(
                "nvmlGpuInstanceGetComputeInstances", pynvml.c_nvmlComputeInstance_t, instance, profile_id
            )
            for compute in computes:
                number = self._must("nvmlComputeInstanceGetInfo", compute).id
                found.setdefault(number, {"id": number, "slices": slices})
        return list(found.values())

    def _list_compute_profiles(self, instance: Any) -> list[tuple[int, int]]:
        """Id and slices of compute profiles that fit into a GPU instance."""
        profiles = []
        for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            code, info = call(
                "nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, number, _SHARED_ENGINES, _FIRST_VERSION
            )
            if code == errors.SUCCESS:
                profiles.append((int(info.id), int(info.sliceCount)))
        return profiles

    def _list(self, function: str, kind: Any, owner: Any, profile_id: int) -> list[Any]:
        places = (kind * _INSTANCES_MAX)()
        count = ctypes.c_uint(_INSTANCES_MAX)
        self._must(function, owner, profile_id, places, ctypes.byref(count))
        return list(places[: count.value])

    def do_write(self, gpu: str, uuid: str, write: dict[str, Any]) -> int:
        """Make one call; the answer has the id of the new instance."""
        device = self._open_device(gpu, uuid)
        made = getattr(self, f"_{write['kind'].replace('-', '_')}")(device.handle, write)
        if write["kind"].startswith("mode"):
            # The driver may have unbound the GPU meanwhile: handles from before are worth nothing.
            self._devices.pop(gpu, None)
        return int(made)

    def do_compute_mode(self, gpu: str, uuid: str, mode: int | None = None) -> int:
        """The GPU's compute mode; with a mode given, set that mode and return the previous mode."""
        handle = self._open_device(gpu, uuid).handle
        before = int(self._must("nvmlDeviceGetComputeMode", handle))
        if mode is not None and mode != before:
            self._must("nvmlDeviceSetComputeMode", handle, mode)
        return before

    def _mode_on(self, handle: Any, _write: dict[str, Any]) -> int:
        return self._set_mode(handle, 1)

    def _mode_off(self, handle: Any, _write: dict[str, Any]) -> int:
        return self._set_mode(handle, 0)

    def _set_mode(self, handle: Any, mode: int) -> int:
        status = self._must("nvmlDeviceSetMigMode", handle, mode)
        if status != errors.SUCCESS:
            raise CallFailed("nvmlDeviceSetMigMode", status)
        return 0

    def _create(self, handle: Any, write: dict[str, Any]) -> int:
        place = pynvml.c_nvmlGpuInstancePlacement_t()
        place.start, place.size = write["start"], write["size"]
        function = "nvmlDeviceCreateGpuInstanceWithPlacement"
        code, instance = call(function, handle, write["profile_id"], ctypes.byref(place))
        if code == errors.FUNCTION_NOT_FOUND:
            # An old driver chooses the place itself; the widest come first, so that all of them fit.
            function = "nvmlDeviceCreateGpuInstance"
            code, instance = call(function, handle, write["profile_id"])
        if code != errors.SUCCESS:
            raise CallFailed(function, code)
        self._newest = instance
        return int(self._must("nvmlGpuInstanceGetInfo", instance).id)

    def _create_compute(self, handle: Any, write: dict[str, Any]) -> int:
        instance = self._find_instance(handle, write)
        fitting = [number for number, slices in self._list_compute_profiles(instance) if slices == write["slices"]]
        if not fitting:
            raise CallFailed("nvmlGpuInstanceGetComputeInstanceProfileInfo", errors.NOT_SUPPORTED)
        compute = self._must("nvmlGpuInstanceCreateComputeInstance", instance, fitting[0])
        return int(self._must("nvmlComputeInstanceGetInfo", compute).id)

    def _destroy(self, handle: Any, write: dict[str, Any]) -> int:
        self._must("nvmlGpuInstanceDestroy", self._find_instance(handle, write))
        return 0

    def _destroy_compute(self, handle: Any, write: dict[str, Any]) -> int:
        instance = self._find_instance(handle, write)
        compute = self._must("nvmlGpuInstanceGetComputeInstanceById", instance, write["compute"])
        self._must("nvmlComputeInstanceDestroy", compute)
        return 0

    def _find_instance(self, handle: Any, write: dict[str, Any]) -> Any:
        number = write["instance"]
        if number == _NEWEST and self._newest is not None:
            return self._newest
        return self._must("nvmlDeviceGetGpuInstanceById", handle, number)

    def do_reset(self, argv: list[str]) -> None:
        """Have the driver's own tool reset one GPU, while this process holds no handle."""
        call("nvmlShutdown")
        self._is_open, self._newest = False, None
        self._devices.clear()
        self.do_tool(argv)

    def do_tool(self, argv: list[str]) -> None:
        """Run the driver's own tool for an act without a call of NVML."""
        try:
            done = subprocess.run(  # noqa: S603 -- the command is the agent's, the address the driver's
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise ToolFailed(errors.UNLOADABLE, f"{argv[0]}: {os.strerror(error.errno or 0)}") from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[:_OUTPUT_SHOWN]
            code = errors.IN_USE if "in use" in said.lower() else errors.UNLOADABLE
            raise ToolFailed(code, f"{' '.join(argv)} ended with {done.returncode}: {said or 'it said nothing'}")

    def _must(self, function: str, *arguments: Any) -> Any:
        code, answer = call(function, *arguments)
        if code != errors.SUCCESS:
            raise CallFailed(function, code)
        return answer


class ToolFailed(CallFailed):
    """A tool of the driver's failed."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message, code)
        self.args = (message,)


def _id_of(one: dict[str, Any]) -> int:
    number: int = one["id"]
    return number


def serve(root: str = "", configured: str = "") -> None:
    """Run as the worker, until the parent ends or says so."""
    die_with_parent()
    Partitioner(root, configured, claim_answers()).serve()
