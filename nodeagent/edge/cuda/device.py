"""One GPU by the CUDA driver interface: contexts, memory, copies, kernels, and the time that the GPU takes for each.

Runs in the prover's process. Owns the arguments of the calls. Refuses to judge results, and to clean up: what the
process had of the GPU goes with the process.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from nodeagent.edge.host.driver.cuda_check import Cuda

KERNELS: Final = Path(__file__).with_name("kernels.ptx")
_CLOCK_KILOHERTZ, _MULTIPROCESSORS, _MEMORY_KILOHERTZ, _BUS_BITS = 13, 16, 36, 37
_ANY_CONTEXT: Final = 1
"""Host memory for copies of every context of the process."""
_THREADS: Final = 256
_BLOCKS_OF_SM: Final = 16


class GpuNotShown(Exception):
    """CUDA shows no GPU with this UUID."""

    def __init__(self, uuid: str, shown: int) -> None:
        super().__init__(f"CUDA shows {shown} GPUs, and {uuid} is not among them")


class CudaGpu:
    """A GPU with a context, current in this thread while the methods are called."""

    def __init__(self, cuda: Cuda, uuid: str) -> None:
        self._call = cuda.call
        self.uuid = uuid
        self._device = ctypes.c_int(_find_ordinal(cuda, uuid))
        self.context = ctypes.c_void_p()
        self._call("cuCtxCreate_v2", ctypes.byref(self.context), 0, self._device)
        self.multiprocessors = self._read_attribute(_MULTIPROCESSORS)
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._start, self._end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._start, self._end):
            self._call("cuEventCreate", ctypes.byref(event), 0)

    def load_kernels(self) -> None:
        """Have the driver translate the kernels for this GPU."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(KERNELS.read_bytes()))
        for name in ("fill_pattern", "check_pattern", "checksum"):
            function = self._functions[name] = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())

    def read_clock_max_mhz(self) -> float:
        """The highest clock of the multiprocessors."""
        return self._read_attribute(_CLOCK_KILOHERTZ) / 1e3

    def read_memory_nominal_gbps(self) -> float:
        """Two bits a clock on each line of the bus; 0 where CUDA does not tell."""
        return 2 * self._read_attribute(_MEMORY_KILOHERTZ) * self._read_attribute(_BUS_BITS) / 8 / 1e6

    def read_free_bytes(self) -> int:
        """Memory that nobody has."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """The address of new memory on the GPU."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def allocate_pinned(self, size: int) -> int:
        """The address of new memory of the host that the GPU reaches by itself."""
        address = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), _ANY_CONTEXT)
        return address.value or 0

    def measure(self, work: Callable[[], None]) -> float:
        """The seconds that the GPU takes for the work, which has ended on return."""
        self._call("cuEventRecord", self._start, None)
        work()
        self._call("cuEventRecord", self._end, None)
        self._call("cuEventSynchronize", self._end)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), self._start, self._end)
        return milliseconds.value / 1e3

    def fill(self, base: int, size: int, seed: int, mask: int) -> None:
        """Begin to write a pattern."""
        self._launch("fill_pattern", self._spread, _THREADS, *map(ctypes.c_uint64, (base, size // 16, seed, mask)))

    def check(self, base: int, size: int, seed: int, mask: int, found: int) -> None:
        """Begin to count the words at `base` that differ from a pattern: the number and the first index at `found`."""
        words = map(ctypes.c_uint64, (base, size // 16, seed, mask, found))
        self._launch("check_pattern", self._spread, _THREADS, *words)

    def sum_up(self, records: int, blocks: int, threads: int, plan: tuple[int, int, int]) -> None:
        """Begin the checksum by (turns, rounds, seed); each block leaves a record of six words."""
        self._launch("checksum", blocks, threads, ctypes.c_uint64(records), *map(ctypes.c_uint32, plan))

    def read_words(self, address: int, count: int) -> list[int]:
        """Words of eight bytes from the GPU, after all work begun before."""
        words = (ctypes.c_uint64 * count)()
        size = ctypes.c_size_t(8 * count)
        self._call("cuMemcpyDtoHAsync_v2", words, ctypes.c_uint64(address), size, None)
        self._call("cuCtxSynchronize")
        return list(words)

    def write_words(self, address: int, *values: int) -> None:
        """Words of eight bytes to the GPU."""
        words = (ctypes.c_uint64 * len(values))(*values)
        size = ctypes.c_size_t(8 * len(values))
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), words, size, None)
        self._call("cuCtxSynchronize")

    def copy_from(self, host: int, address: int, size: int) -> None:
        """Begin a copy to pinned memory of the host."""
        source = ctypes.c_uint64(address)
        self._call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), source, ctypes.c_size_t(size), None)

    def copy_to(self, address: int, host: int, size: int) -> None:
        """Begin a copy from pinned memory of the host."""
        goal = ctypes.c_uint64(address)
        self._call("cuMemcpyHtoDAsync_v2", goal, ctypes.c_void_p(host), ctypes.c_size_t(size), None)

    def copy_between(self, goal: "CudaGpu", address: int, source: "CudaGpu", origin: int, size: int) -> None:
        """Begin a copy from one GPU to another; one of the two is this GPU."""
        places = (ctypes.c_uint64(address), goal.context, ctypes.c_uint64(origin), source.context)
        self._call("cuMemcpyPeerAsync", *places, ctypes.c_size_t(size), None)

    def enable_peer(self, peer: "CudaGpu") -> None:
        """Let the two GPUs reach each other's memory, where the hardware can; copies go through the host otherwise."""
        can = ctypes.c_int()
        self._call("cuDeviceCanAccessPeer", ctypes.byref(can), self._device, peer._device)  # noqa: SLF001 - own class
        if not can.value:
            return
        peer.make_current()
        self._call("cuCtxEnablePeerAccess", self.context, 0)
        self.make_current()
        self._call("cuCtxEnablePeerAccess", peer.context, 0)

    def make_current(self) -> None:
        """Let the next calls of the thread mean this GPU."""
        self._call("cuCtxSetCurrent", self.context)

    def close(self) -> None:
        """End the context, with all that it has."""
        self._call("cuCtxDestroy_v2", self.context)

    @property
    def _spread(self) -> int:
        return self.multiprocessors * _BLOCKS_OF_SM

    def _read_attribute(self, attribute: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device)
        return value.value

    def _launch(self, name: str, blocks: int, threads: int, *arguments: ctypes.c_uint64 | ctypes.c_uint32) -> None:
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        shape = (blocks, 1, 1, threads, 1, 1, 0)
        self._call("cuLaunchKernel", self._functions[name], *shape, None, places, None)


def _find_ordinal(cuda: Cuda, uuid: str) -> int:
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    for ordinal in range(count.value):
        device = ctypes.c_int()
        cuda.call("cuDeviceGet", ctypes.byref(device), ordinal)
        read = (ctypes.c_uint8 * 16)()
        cuda.call("cuDeviceGetUuid", read, device)
        if f"GPU-{UUID(bytes=bytes(read))}" == uuid:
            return ordinal
    raise GpuNotShown(uuid, count.value)
