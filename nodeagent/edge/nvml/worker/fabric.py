"""A GPU's place in a switched NVLink fabric, in the newest form that the driver speaks.

Runs in the worker process. Owns the fall-back from structure version 3 to 1.
"""

import ctypes

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.query import Query

PHASES = {1: "not_started", 2: "in_progress", 3: "completed"}
_OLDER = frozenset({errors.ARGUMENT_VERSION_MISMATCH, errors.FUNCTION_NOT_FOUND, errors.INVALID_ARGUMENT})
_BYTE = 0xFF
"""NVIDIA's header has one byte for the state; the binding reads the gap behind it too, which may hold anything."""


def read_fabric(query: Query) -> dict[str, Any] | None:
    """The registration with the fabric; `None` on a board without a fabric."""
    code = errors.FUNCTION_NOT_FOUND
    for function, structure in (
        ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v3_t),
        ("nvmlDeviceGetGpuFabricInfoV", pynvml.c_nvmlGpuFabricInfo_v2_t),
        ("nvmlDeviceGetGpuFabricInfo", pynvml.c_nvmlGpuFabricInfo_t),
    ):
        info = structure()
        code, _ = query.attempt_of(query.handle, function, ctypes.byref(info))
        if code == errors.SUCCESS:
            return _render(info)
        if code not in _OLDER:
            break
    query.mark("fabric", code)
    return None


def _render(info: Any) -> dict[str, Any] | None:
    state = info.state & _BYTE
    if state not in PHASES:
        return None
    cluster = bytes(info.clusterUuid).hex()
    return {
        "phase": PHASES[state],
        "status_code": info.status,
        "cluster_uuid": f"{cluster[:8]}-{cluster[8:12]}-{cluster[12:16]}-{cluster[16:20]}-{cluster[20:]}",
        "clique_id": info.cliqueId,
        "health_mask": getattr(info, "healthMask", 0),
        "health_summary": getattr(info, "healthSummary", 0),
    }
