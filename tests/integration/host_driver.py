"""A driver for the cluster's node: the fake NVML and its companions where a driver container puts them.

Device nodes are links' worth of /dev/null with the right names; everything the agent finds, it finds by its own search.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.nvml.control import ENVIRONMENT_VARIABLE, FakeNvml
from tests.integration.cluster.layout import Layout
from tests.support.files.driver_tree import LIBRARIES, LIBRARY_DIRECTORY, DriverTree

NULL = os.makedev(1, 3)
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
POD_STATE = "/var/run/cdi/nvml-state"
"""Where the agent's pod sees the fake's state: the one directory of the host that both may write to."""
WORKER_ENVIRONMENT = {ENVIRONMENT_VARIABLE: POD_STATE}


@contextmanager
def installed_driver(layout: Layout, profile: str = "dgx-h100") -> Iterator[FakeNvml]:
    """The node has this driver for the length of the block."""
    home = find_driver(layout)
    fake = FakeNvml(layout.cdi_dirs[1], profile)
    install_driver(home, fake)
    try:
        yield fake
    finally:
        fake.close()
        fake.state_path.unlink(missing_ok=True)
        for path in sorted(home.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        home.rmdir()


def find_driver(layout: Layout) -> Path:
    """The root of the node's driver, under a path that holds in and outside the cluster's namespace."""
    return layout.run / "nvidia" / "driver"


def install_driver(home: Path, fake: FakeNvml, version: str = "") -> None:
    """The files and device nodes of a driver whose NVML is this one; by default of the fake's own version."""
    tree = DriverTree(home)
    version = version or fake.profile.driver.version
    libraries = {stem: soname.replace("580.65.06", version) for stem, soname in LIBRARIES.items()}
    tree.install(version, libraries=libraries)
    tree.write(f"{LIBRARY_DIRECTORY}/libnvidia-ml.so.{version}", fake.library_path.read_bytes())
    for name in (*CONTROL_NODES, *(f"nvidia{number}" for number in range(len(fake.profile.seats)))):
        make_node(home / "dev" / name)


def make_node(path: Path, number: int = NULL) -> None:
    """A character device; unless it is told otherwise, one that does nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o666 | stat.S_IFCHR, number)
    path.chmod(0o666)
