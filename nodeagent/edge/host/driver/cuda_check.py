"""The CUDA smoke test: on each GPU a context, an allocation, a copy there and back, and a comparison.

The test is run in a short-lived child process, because libcuda may hang, crash, or keep the GPU busy; `cuda_child` is
the parent's side. Owns the few calls of the CUDA driver interface. Refuses every import but the standard library's and
the frame codec, and to call a GPU broken because other processes use all of the GPU.
"""

import ctypes
import os
import sys
from collections.abc import Sequence

from nodeagent.core.children.child_setup import claim_answers, die_with_parent
from nodeagent.core.children.frames import read_frames, write_frame

LIBRARY = "libcuda.so.1"
PATTERN = bytes(range(256)) * 16
"""4 KiB without equal neighbours: a wrong copy shows."""

_OUT_OF_MEMORY = 2
_DEVICE_UNAVAILABLE = 46
_IN_USE = {_OUT_OF_MEMORY, _DEVICE_UNAVAILABLE}
"""CUDA's errors for a working GPU in use: all memory taken, or in exclusive use."""


class CudaCallFailed(Exception):
    """A call of the CUDA driver interface failed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call} failed with {name or 'an unknown error'} ({code})")
        self.call, self.code = call, code


class Cuda:
    """The loaded library; a failed call raises."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the library."""
        code = int(getattr(self._library, function)(*arguments))
        if code:
            raise CudaCallFailed(function, code, self._name_error(code))

    def _name_error(self, code: int) -> str:
        name = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(name)) or name.value is None:
            return ""
        return name.value.decode("ascii", "replace")


def check_cuda(path: str) -> str:
    """Test every GPU that CUDA shows; the failures, empty without failures."""
    try:
        cuda = Cuda(path)
    except OSError as error:
        return f"cannot load {path}: {error}"
    try:
        cuda.call("cuInit", 0)
        failures = [_check_device(cuda, ordinal) for ordinal in range(_count_devices(cuda))]
    except CudaCallFailed as error:
        return str(error)
    except AttributeError as error:
        return f"{path} is no CUDA driver library: {error}"
    return "; ".join(failure for failure in failures if failure)


def _count_devices(cuda: Cuda) -> int:
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def _check_device(cuda: Cuda, ordinal: int) -> str:
    try:
        _use_device(cuda, ordinal)
    except CudaCallFailed as error:
        return "" if error.code in _IN_USE else f"GPU {ordinal}: {error}"
    except _CopyDiffers:
        return f"GPU {ordinal}: what was copied back differs from what was copied there"
    return ""


class _CopyDiffers(Exception):
    """The GPU's memory or the way to the GPU changes bytes."""


def _use_device(cuda: Cuda, ordinal: int) -> None:
    device = ctypes.c_int()
    context = ctypes.c_void_p()
    cuda.call("cuDeviceGet", ctypes.byref(device), ordinal)
    cuda.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    try:
        _copy_there_and_back(cuda)
    finally:
        cuda.call("cuCtxDestroy_v2", context)


def _copy_there_and_back(cuda: Cuda) -> None:
    memory = ctypes.c_uint64()
    size = ctypes.c_size_t(len(PATTERN))
    back = ctypes.create_string_buffer(len(PATTERN))
    cuda.call("cuMemAlloc_v2", ctypes.byref(memory), size)
    try:
        cuda.call("cuMemcpyHtoD_v2", memory, PATTERN, size)
        cuda.call("cuMemcpyDtoH_v2", back, memory, size)
    finally:
        cuda.call("cuMemFree_v2", memory)
    if back.raw != PATTERN:
        raise _CopyDiffers


def main(arguments: Sequence[str]) -> None:
    """The child: answer each request, a library's path, until the agent closes the pipe."""
    if arguments:
        # By hand, for the agent's view.
        sys.stdout.write(check_cuda(arguments[0]) + "\n")
        return
    die_with_parent()
    answers = claim_answers()
    for request, payload in read_frames(0):
        path = payload.decode("utf-8", "surrogateescape")
        write_frame(answers, request, check_cuda(path).encode("utf-8", "surrogateescape"))
    os.close(answers)


if __name__ == "__main__":
    main(sys.argv[1:])
