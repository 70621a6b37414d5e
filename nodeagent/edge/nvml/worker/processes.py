"""The processes on a GPU or a MIG device, with the utilization of each.

Runs in the worker process. Owns the merge of NVML's several lists into one entry per process and device.
Refuses to resolve pids: names, cgroups and pods are found elsewhere.
"""

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.query import Query

_NO_INSTANCE = 0xFFFFFFFF
_COMPUTE_LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3")
_GRAPHICS_LIST = "nvmlDeviceGetGraphicsRunningProcesses_v3"


def read_gpu_processes(query: Query, since_microseconds: int) -> tuple[list[dict[str, Any]], int]:
    """All processes of a whole GPU with utilization, and the newest sample's time, for the next call."""
    processes: dict[int, dict[str, Any]] = {}
    for function in (*_COMPUTE_LISTS, _GRAPHICS_LIST):
        for found in _list(query, query.handle, function):
            _add(processes, found, graphics=function == _GRAPHICS_LIST)
    newest = _add_utilization(query, processes, since_microseconds)
    return list(processes.values()), newest


def read_mig_processes(query: Query, handle: Any) -> list[dict[str, Any]]:
    """The processes of one MIG device, without utilization, which NVML lacks for MIG."""
    processes: dict[int, dict[str, Any]] = {}
    for found in _list(query, handle, _COMPUTE_LISTS[0]):
        _add(processes, found, graphics=False)
    return list(processes.values())


def _list(query: Query, handle: Any, function: str) -> Any:
    code, found = query.attempt_of(handle, function)
    if code == errors.INSUFFICIENT_SIZE:  # a burst of new processes between the two calls of the binding
        code, found = query.attempt_of(handle, function)
    if code != errors.SUCCESS:
        query.mark("processes", code)
        return ()
    return found


def _add(processes: dict[int, dict[str, Any]], found: Any, *, graphics: bool) -> None:
    process = processes.setdefault(found.pid, {"pid": found.pid})
    if found.usedGpuMemory is not None:
        process["memory_used_bytes"] = max(found.usedGpuMemory, process.get("memory_used_bytes", 0))
    if graphics:
        process["graphics"] = True
    if found.gpuInstanceId != _NO_INSTANCE:
        process["gpu_instance_id"] = found.gpuInstanceId
    if found.computeInstanceId != _NO_INSTANCE:
        process["compute_instance_id"] = found.computeInstanceId


def _add_utilization(query: Query, processes: dict[int, dict[str, Any]], since_microseconds: int) -> int:
    """Add the newest sample of each process in the window; a process without samples is idle."""
    code, samples = query.attempt_of(query.handle, "nvmlDeviceGetProcessUtilization", since_microseconds)
    query.mark("process utilization", code)
    if code not in (errors.SUCCESS, errors.NOT_FOUND):
        return since_microseconds
    for process in processes.values():
        _set_utilization(process, 0, 0, 0, 0)
    newest = since_microseconds
    for sample in sorted(samples or (), key=_time_of):
        newest = max(newest, sample.timeStamp)
        if sample.pid in processes:
            _set_utilization(processes[sample.pid], sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)
    return newest


def _set_utilization(process: dict[str, Any], sm: int, memory: int, encoder: int, decoder: int) -> None:
    process["sm_utilization_percent"] = sm
    process["memory_utilization_percent"] = memory
    process["encoder_utilization_percent"] = encoder
    process["decoder_utilization_percent"] = decoder


def _time_of(sample: Any) -> int:
    time: int = sample.timeStamp
    return time
