"""Whether the container of this process can use its GPU: device nodes, libraries, a computation.

Refuses to look at the host: everything is seen as a program of the container sees it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import anyio

from nodeagent.edge.host.driver.cuda_check import LIBRARY
from nodeagent.edge.host.driver.cuda_child import CudaChild
from nodeagent.edge.host.driver.roots import NVML_LIBRARY, find_library
from nodeagent.edge.host.errors import describe_os_error

_CONTROL = "nvidiactl"
_GPUS = "nvidia[0-9]*"


def check_workload(root: Path = Path("/"), *, limit_seconds: float = 60.0) -> Sequence[str]:
    """What is missing or fails; empty where the GPU can be used. Runs a loop of its own, for the computation."""
    problems = [*_check_devices(root / "dev"), *_check_libraries(root)]
    if problems:
        return problems
    failure = anyio.run(CudaChild(timeout_seconds=limit_seconds).check, find_library(root, LIBRARY))
    return [f"CUDA: {failure}"] if failure else []


def _check_devices(directory: Path) -> list[str]:
    gpus = sorted(directory.glob(_GPUS))
    missing = [] if gpus else [f"no GPU's device node {directory}/nvidia0 is in the container"]
    return missing + [problem for path in (directory / _CONTROL, *gpus) if (problem := _open(path))]


def _open(path: Path) -> str:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{path} cannot be opened: {describe_os_error(error)}"
    return ""


def _check_libraries(root: Path) -> list[str]:
    return [f"{name} is not in the container" for name in (NVML_LIBRARY, LIBRARY) if find_library(root, name) is None]
