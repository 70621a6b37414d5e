"""The worker process: loads the library, makes calls one at a time, answers, and may be killed at any time.

Owns handles, and no state worth keeping. Refuses decisions: answers are plain dictionaries.
A library replaced on disk, and handles gone stale after a reset, both need a new process: the worker ends itself then.
"""

import json
import os
import threading
import time

import pynvml

from nodeagent.core.children.child_setup import announce_step, claim_answers, die_with_parent
from nodeagent.core.children.frames import UNASKED, read_frames, write_frame
from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import IDLE, Any, name_step
from nodeagent.edge.nvml.worker.events import Watcher
from nodeagent.edge.nvml.worker.fabric import read_fabric
from nodeagent.edge.nvml.worker.inventory import read_gpu
from nodeagent.edge.nvml.worker.library import Library, LibraryUnusable, find_library, load_library
from nodeagent.edge.nvml.worker.query import CALL_COUNTS, GpuGone, Query, call
from nodeagent.edge.nvml.worker.rights import give_up_device_nodes
from nodeagent.edge.nvml.worker.sample import Sampler

EXIT_RENEW = 3
"""The worker asks to be replaced by a fresh one."""

RENEW_SECONDS = 5
"""How long a process goes on that never could open a GPU; one that is broken for good costs the others no more."""
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_CUDA_MAJOR = 1000
_CUDA_MINOR = 10


class Device:
    """An opened GPU."""

    def __init__(self, handle: Any, uuid: str, pci_directory: str) -> None:
        self.handle, self.uuid = handle, uuid
        self.sampler = Sampler(handle, pci_directory)


class CallFailed(Exception):
    """A call that concerns a whole GPU or the driver failed."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function}: {errors.describe_code(code)}")
        self.code = code


class Worker:
    """Answers requests in the form of `protocol`."""

    def __init__(self, root: str, configured: str, answers: int) -> None:
        self._root, self._configured = root, configured
        self._library: Library | None = None
        self._is_open = False
        self._opened_at = 0.0
        self._devices: dict[str, Device] = {}
        self._inforoms: dict[str, tuple[float, bool | None]] = {}
        self._sysfs = ""
        self._sending = threading.Lock()
        self._answers = answers
        self._watcher = Watcher(lambda event: self._send(UNASKED, event))

    def serve(self) -> None:
        """Answer until the parent closes the pipe."""
        for number, payload in read_frames(0):
            self._send(number, self.answer(_decode(str(payload, "utf-8"))))

    def _send(self, number: int, message: dict[str, Any]) -> None:
        payload = _encode(message).encode()
        with self._sending:
            write_frame(self._answers, number, payload)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request, in the form of `protocol.Answer`."""
        what = request.pop("do")
        if what != "open" and not self._is_open:
            return {"closed": True}
        try:
            return {"value": getattr(self, f"do_{what}")(**request)}
        except CallFailed as failed:
            path = self._library.path if self._library is not None else ""
            return {"failure": {"code": failed.code, "message": str(failed), "library_path": path}}
        except GpuGone as gone:
            return {"failure": {"code": errors.GPU_IS_LOST, "message": str(gone)}}
        except LibraryUnusable as unusable:
            return {"failure": {"code": errors.UNLOADABLE, "message": str(unusable)}}

    def do_open(self, sysfs: str = "") -> dict[str, Any]:
        """Load and initialise the library, also after a driver that was not ready."""
        self._sysfs = sysfs
        if self._is_open and self._library is not None:
            return self._describe(self._library)
        path = find_library(self._root, self._configured)
        if self._library is None:
            self._library = load_library(path)
        elif self._library.is_replaced(path):
            os._exit(EXIT_RENEW)
        pynvml.nvmlLib = self._library.handle
        code, _ = call("nvmlInitWithFlags", 0)
        if code != errors.SUCCESS:
            raise CallFailed("nvmlInitWithFlags", code)
        self._is_open, self._opened_at = True, time.monotonic()
        return self._describe(self._library)

    def _describe(self, library: Library) -> dict[str, Any]:
        code, cuda = call("nvmlSystemGetCudaDriverVersion_v2")
        return {
            "driver_version": call("nvmlSystemGetDriverVersion")[1] or "",
            "version": call("nvmlSystemGetNVMLVersion")[1] or "",
            "cuda_version": None if code else (cuda // _CUDA_MAJOR, cuda % _CUDA_MAJOR // _CUDA_MINOR),
            "gpu_count": self.do_count(),
            "library_path": library.path,
        }

    def do_count(self) -> int:
        """The number of GPUs in the driver's list, silent GPUs included."""
        code, count = call("nvmlDeviceGetCount")
        if code != errors.SUCCESS:
            raise CallFailed("nvmlDeviceGetCount_v2", code)
        return int(count)

    def do_gpu(self, index: int) -> dict[str, Any]:
        """All facts about the GPU at an index."""
        code, handle = call("nvmlDeviceGetHandleByIndex", index)
        if code != errors.SUCCESS:
            raise CallFailed("nvmlDeviceGetHandleByIndex_v2", code)
        self._read_uuid(handle)
        query = Query(handle, {})
        gpu = read_gpu(query, index, self._inforoms)
        device = self._devices.get(gpu["pci"]["address"])
        if device is not None:
            device.sampler.forget()
        return gpu

    def do_sample(
        self, gpus: list[tuple[int, str, str]], *, whole: bool = True, extras: list[str] | tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Samples of the GPUs at PCI addresses, which must still have the given UUIDs.

        Before each GPU the process name is set to the index, so that the GPU of a hung or dead worker is known.
        """
        samples, calls = [], 0
        for index, address, uuid in gpus:
            announce_step(name_step(index))
            sample, price = self._sample(address, uuid, whole=whole, extras=tuple(extras))
            samples.append(sample)
            calls += price
        announce_step(IDLE)
        return {"samples": samples, "calls": calls, **(CALL_COUNTS.take() if whole else {})}

    def _sample(self, address: str, uuid: str, *, whole: bool, extras: tuple[str, ...]) -> tuple[dict[str, Any], int]:
        try:
            device = self._open_device(address, uuid)
        except (CallFailed, GpuGone) as problem:
            return {"uuid": uuid, "lost": str(problem)}, 2
        sample, calls = device.sampler.read(whole=whole, extras=extras)
        sample["uuid"] = uuid
        if device.sampler.is_stale:
            os._exit(EXIT_RENEW)
        return sample, calls

    def do_paths(self, gpu: str, uuid: str, others: list[tuple[str, str]]) -> list[int | None]:
        """NVML's topology level from one GPU to each of the others."""
        handle = self._open_device(gpu, uuid).handle
        levels = []
        for other, other_uuid in others:
            other_handle = self._open_device(other, other_uuid).handle
            code, level = call("nvmlDeviceGetTopologyCommonAncestor", handle, other_handle)
            levels.append(None if code else level)
        return levels

    def do_fabric(self, gpu: str, uuid: str) -> dict[str, Any] | None:
        """The progress of a GPU's registration with the fabric; `None` on a board without a fabric."""
        return read_fabric(Query(self._open_device(gpu, uuid).handle, {}))

    def do_watch(self, gpu: str, uuid: str) -> None:
        """Report a GPU's events from now on."""
        device = self._open_device(gpu, uuid)
        code = self._watcher.register(device.handle, uuid)
        if code != errors.SUCCESS:
            raise CallFailed("nvmlDeviceRegisterEvents", code)

    def _open_device(self, address: str, uuid: str) -> Device:
        device = self._devices.get(address)
        if device is not None and device.uuid == uuid:
            return device
        code, handle = call("nvmlDeviceGetHandleByPciBusId", address)
        if code != errors.SUCCESS:
            raise CallFailed("nvmlDeviceGetHandleByPciBusId_v2", code)
        code, found = self._read_uuid(handle)
        if code != errors.SUCCESS:
            raise CallFailed("nvmlDeviceGetUUID", code)
        if found != uuid:
            raise GpuGone(f"another GPU sits at {address} now: {found}")
        device = self._devices[address] = Device(
            handle, uuid, f"{self._sysfs}/bus/pci/devices/{address}" if self._sysfs else ""
        )
        return device

    def _read_uuid(self, handle: Any) -> tuple[int, Any]:
        """The UUID by a fresh handle; an invalid handle means that the GPU was reset since the library was opened."""
        code, uuid = call("nvmlDeviceGetUUID", handle)
        if code == errors.INVALID_ARGUMENT and time.monotonic() - self._opened_at >= RENEW_SECONDS:
            os._exit(EXIT_RENEW)
        return code, uuid


def serve(root: str = "", configured: str = "") -> None:
    """Run as the worker, until the parent ends or says so; the kernel then closes every handle."""
    die_with_parent()
    give_up_device_nodes()
    Worker(root, configured, claim_answers()).serve()
