"""NVML's return codes: codes that hide a datum, a GPU, or the driver.

Owns the table of all codes, in words for people.
Refuses imports, because the worker process loads the module: the translation into `DriverError` is in `protocol`.
"""

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
OPERATING_SYSTEM = 17
VERSION_MISMATCH = 18
IN_USE = 19
ARGUMENT_VERSION_MISMATCH = 25
GPU_NOT_FOUND = 28

UNLOADABLE = -1
"""Not NVML's: the library itself could not be loaded."""
UNINTELLIGIBLE = -2
"""Not NVML's: the library succeeded, but what it gave cannot be a value."""

REASONS: dict[int, str] = {
    UNINTELLIGIBLE: "the answer makes no sense",
    UNLOADABLE: "the NVML library cannot be loaded",
    1: "NVML is not initialised",
    INVALID_ARGUMENT: "NVML calls the argument invalid, the handle may be stale",
    NOT_SUPPORTED: "not supported by this GPU",
    NO_PERMISSION: "no permission: check the mode of the device nodes and the device cgroup",
    5: "NVML is initialised already",
    NOT_FOUND: "not found",
    INSUFFICIENT_SIZE: "the answer outgrew its buffer",
    8: "external power is missing: check the power cables",
    DRIVER_NOT_LOADED: "the driver is not loaded",
    TIMEOUT: "the driver timed out",
    11: "the kernel found an interrupt problem with the GPU",
    LIBRARY_NOT_FOUND: "the NVML library is missing",
    FUNCTION_NOT_FOUND: "this driver does not know the call",
    CORRUPTED_INFOROM: "the infoROM is corrupted",
    GPU_IS_LOST: "the GPU is lost: it fell off the bus or is otherwise inaccessible",
    16: "the GPU must be reset before it can be used again",
    OPERATING_SYSTEM: "the operating system blocks the GPU: check the device cgroup",
    VERSION_MISMATCH: "the NVML library does not fit the loaded kernel module",
    19: "the GPU is in use",
    20: "the driver is out of memory",
    21: "no data yet",
    22: "not supported while ECC is on under vGPU",
    23: "out of a critical resource other than memory",
    24: "the frequency is not supported",
    ARGUMENT_VERSION_MISMATCH: "this driver knows another version of the structure",
    26: "the call is deprecated",
    27: "the system is not ready for the call",
    GPU_NOT_FOUND: "no such GPU",
    29: "the GPU is in the wrong state for the call",
    30: "the reset type is not supported",
    999: "the driver reports an unknown error",
}

ABSENT_CODES = frozenset({NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, 21, 22, 24, 26, 30})
"""The hardware or this driver has no such datum: absence, not a fault."""

LASTING_CODES = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, 22, 24, 26, 30})
"""Will be answered again the same way, so the call is not repeated until the next enumeration."""

LOST_CODES = frozenset({GPU_IS_LOST, GPU_NOT_FOUND})
"""Nothing more can be learned of this GPU."""


def describe_code(code: int) -> str:
    """The code in words, with its number, for people."""
    return f"{REASONS.get(code, 'the driver reports an error this agent does not know')} (NVML code {code})"
