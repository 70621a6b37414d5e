"""Waits for driver reports in one thread.

Runs in the worker process; the names of reports are in `shared`, for the agent's side too.
Refuses to judge, and to guess the GPU of a failed wait: the agent's side polls all GPUs.
"""

import ctypes
import threading
from collections.abc import Callable

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import WANTED, XID, Any
from nodeagent.edge.nvml.worker.query import call, wait_library

_WAIT_MILLISECONDS = 1000
_PICKY_CODES = frozenset({errors.INVALID_ARGUMENT, errors.NOT_SUPPORTED, errors.NO_PERMISSION})
"""One kind in the mask may need a privilege or another driver; the XIDs alone are worth having."""

Send = Callable[[dict[str, Any]], None]


class Watcher:
    """Registers GPUs with one event set and waits for events in a separate thread."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._set: Any = None
        self._set_lock = threading.Lock()  # a set must not be freed while a GPU is being registered with it
        self._uuids: dict[int | None, str] = {}

    def register(self, handle: Any, uuid: str) -> int:
        """Add a GPU to the event set; the code is 3 for a GPU without reports."""
        code, supported = call("nvmlDeviceGetSupportedEventTypes", handle)
        if code != errors.SUCCESS:
            return code
        if not supported & WANTED:
            return errors.NOT_SUPPORTED
        with self._set_lock:
            code = errors.SUCCESS if self._set is not None else self._start()
            if code != errors.SUCCESS:
                return code
            self._uuids[_key(handle)] = uuid
            code, _ = call("nvmlDeviceRegisterEvents", handle, supported & WANTED, self._set)
            if code in _PICKY_CODES and supported & XID:
                code, _ = call("nvmlDeviceRegisterEvents", handle, XID, self._set)
            return code

    def _start(self) -> int:
        code, event_set = call("nvmlEventSetCreate")
        if code == errors.SUCCESS:
            self._set = event_set
            threading.Thread(target=self._wait, args=(event_set,), name="nvml events", daemon=True).start()
        return code

    def _wait(self, event_set: Any) -> None:
        """Until the wait fails otherwise than by time; the set is then of no use any more."""
        while True:
            code, data = wait_library("nvmlEventSetWait_v2", event_set, _WAIT_MILLISECONDS)
            if code == errors.SUCCESS:
                self._report(data)
            elif code != errors.TIMEOUT:
                break
        with self._set_lock:
            self._set = None
            call("nvmlEventSetFree", event_set)
        self._send({"ended": code})

    def _report(self, data: Any) -> None:
        uuid = self._uuids.get(_key(data.device)) or call("nvmlDeviceGetUUID", data.device)[1]
        if uuid is not None:
            self._send(
                {
                    "gpu": uuid,
                    "type": data.eventType,
                    "data": data.eventData,
                    "gpu_instance": data.gpuInstanceId,
                    "compute_instance": data.computeInstanceId,
                }
            )


def _key(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
