"""Driver files as values, for tests that need no tree."""

from collections.abc import Mapping
from typing import Any

from nodeagent.model.cdi import DriverFile, DriverFiles, DriverLibrary, DriverNode

TRIPLET = "x86_64-linux-gnu"
DIRECTORY = f"/usr/lib/{TRIPLET}"
VERSION = "580.65.06"
CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def make_library(stem: str, soname: str = "", *, root: str = "", directory: str = DIRECTORY) -> DriverLibrary:
    path = f"{directory}/{stem}.so.{VERSION}"
    return DriverLibrary(path=path, host_path=f"{root}{path}", soname=soname or f"{stem}.so.1")


def make_file(path: str, root: str = "") -> DriverFile:
    return DriverFile(path=path, host_path=f"{root}{path}")


def make_node(path: str, root: str = "", **access: int) -> DriverNode:
    return DriverNode(path=path, host_path=f"{root}{path}", **access)


def make_files(gpus: int = 2, *, root: str = "", nodes: tuple[str, ...] = (), **fields: Any) -> DriverFiles:
    """A complete small driver with the nodes of so many GPUs."""
    names = (*CONTROL, *(f"nvidia{minor}" for minor in range(gpus)), *nodes)
    values: dict[str, Any] = {
        "version": VERSION,
        "libraries": (make_library("libcuda", root=root), make_library("libnvidia-ml", root=root)),
        "files": (make_file("/usr/bin/nvidia-smi", root),),
        "nodes": tuple(make_node(f"/dev/{name}", root) for name in names),
        "triplet": TRIPLET,
    }
    return DriverFiles(**(values | fields))


def make_capabilities(minor: int, instances: Mapping[int, int], first: int = 3) -> dict[str, int]:
    """Capability minors of one GPU: GPU instance id to compute instance id."""
    minors: dict[str, int] = {}
    for gpu_instance, compute_instance in instances.items():
        for name in (f"gpu{minor}/gi{gpu_instance}/access", f"gpu{minor}/gi{gpu_instance}/ci{compute_instance}/access"):
            minors[name] = first + len(minors)
    return minors
