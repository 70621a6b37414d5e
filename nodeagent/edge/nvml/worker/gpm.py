"""Hardware counters on Hopper and later: the mean between two samples of a GPU or a GPU instance.

Runs in the worker process. Owns the sample buffers of one entity, and one structure for all questions.
Refuses intervals under a tenth of a second, for which the library's values are meaningless.
"""

import ctypes
import struct
import time

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any
from nodeagent.edge.nvml.worker.query import Query, call

_PERCENT = 0.01
_INFINITY = float("inf")
_MIB = 1048576.0

METRICS: dict[int, tuple[str, float]] = {
    1: ("graphics_engine_active", _PERCENT),
    2: ("sm_active", _PERCENT),
    3: ("sm_occupancy", _PERCENT),
    5: ("tensor_active", _PERCENT),
    10: ("dram_active", _PERCENT),
    11: ("fp64_active", _PERCENT),
    12: ("fp32_active", _PERCENT),
    13: ("fp16_active", _PERCENT),
    20: ("pcie_transmit_bytes_per_second", _MIB),
    21: ("pcie_receive_bytes_per_second", _MIB),
    61: ("nvlink_transmit_bytes_per_second", _MIB),
    60: ("nvlink_receive_bytes_per_second", _MIB),
}
_INTERVAL_SECONDS = 0.11

_METRIC = struct.Struct("=IId24x")
"""Number, code and value of one metric, and three pointers to its name and unit."""


class MetricsBuffer:
    """The binding's structure for a question and the answer, 19 kB, used by all entities in turn."""

    def __init__(self) -> None:
        self._request: Any = None
        self._start = 0

    def fill(self, samples: list[Any], question: bytes) -> Any:
        """Fill the structure with the request for metrics between two samples, over the previous answer.

        The bytes are copied, because the binding's structures take as long to fill as the call.
        """
        if self._request is None:
            assert _METRIC.size == ctypes.sizeof(pynvml.c_nvmlGpmMetric_t)
            self._request = pynvml.c_nvmlGpmMetricsGet_t()
            self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            self._start = ctypes.addressof(self._request) + type(self._request).metrics.offset
        self._request.sample1, self._request.sample2 = samples
        self._request.numMetrics = len(question) // _METRIC.size
        ctypes.memmove(self._start, question, len(question))
        return self._request

    def read(self, size: int) -> bytes:
        """The answer's metrics, as many bytes as the question had."""
        return ctypes.string_at(self._start, size)


BUFFER = MetricsBuffer()
"""That of this process, which makes one such call at a time."""


class Profiler:
    """Two buffers, filled in turn."""

    _buffers: list[Any]

    def __init__(self, gpu_instance: int | None = None, metrics: dict[int, tuple[str, float]] = METRICS) -> None:
        self._gpu_instance, self._metrics = gpu_instance, metrics
        self._buffers = []
        self._taken_at = -_INTERVAL_SECONDS
        self._filled = 0
        self._last: dict[str, float] | None = None
        self._question = b"".join(_METRIC.pack(number, 0, 0.0) for number in metrics)

    def read(self, query: Query) -> dict[str, float] | None:
        """The metrics since the previous reading; empty at the first reading."""
        now = time.monotonic()
        if now - self._taken_at < _INTERVAL_SECONDS:
            return self._last
        if not self._buffers and not self._allocate(query):
            return None
        if not self._take_sample(query):
            self._filled, self._last = 0, None
            return None
        self._taken_at = now
        self._filled += 1
        self._last = self._compute(query) if self._filled > 1 else None
        return self._last

    def close(self) -> None:
        """Give the buffers back."""
        for buffer in self._buffers:
            call("nvmlGpmSampleFree", buffer)
        self._buffers = []

    def _allocate(self, query: Query) -> bool:
        for _ in range(2):
            code, buffer = call("nvmlGpmSampleAlloc")
            if code != errors.SUCCESS:
                query.mark("profiling", code)
                self.close()
                return False
            self._buffers.append(buffer)
        return True

    def _take_sample(self, query: Query) -> bool:
        """Take a sample into the older buffer, which becomes the newer buffer."""
        self._buffers.reverse()
        arguments = (self._buffers[1],) if self._gpu_instance is None else (self._gpu_instance, self._buffers[1])
        function = "nvmlGpmSampleGet" if self._gpu_instance is None else "nvmlGpmMigSampleGet"
        code, _ = query.attempt_of(query.handle, function, *arguments)
        query.mark("profiling", code)
        return code == errors.SUCCESS

    def _compute(self, query: Query) -> dict[str, float] | None:
        request = BUFFER.fill(self._buffers, self._question)
        query.calls += 1
        code, _ = call("nvmlGpmMetricsGet", request)
        if code != errors.SUCCESS:
            query.mark("profiling", code)
            self._filled = 0  # a reset or a new MIG layout made the older sample worthless
            return None
        answers = _METRIC.iter_unpack(BUFFER.read(len(self._question)))
        values = {
            name: value * scale
            for (_, code, value), (name, scale) in zip(answers, self._metrics.values(), strict=True)
            if code == errors.SUCCESS and -_INFINITY < value < _INFINITY
        }
        return values or None
