"""The first lines that run in the worker process: they keep it small, then hand over.

pynvml imports `ctypes.util` for a function that it uses on Windows only; that import brings in subprocess, tempfile,
random and more: 2 MB of memory and a third of the start-up time (measured on Python 3.11, x86-64).
"""

import sys
from types import ModuleType


def main(arguments: list[str]) -> None:
    """Become the worker: `arguments` are the driver root and the library to load, either possibly empty."""
    stand_in = ModuleType("ctypes.util")
    stand_in.__dict__["find_library"] = None
    sys.modules.setdefault("ctypes.util", stand_in)
    from nodeagent.edge.nvml.worker import serve  # noqa: PLC0415 -- imports pynvml, so it comes after the stand-in

    serve(*arguments)
