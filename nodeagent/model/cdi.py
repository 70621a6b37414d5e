"""What of the driver a container needs: its files, its device nodes, and where the host keeps them.

Found by the host's edge, turned into specifications by the cdi component. Every path comes twice: as the driver itself
names it, which is where a container sees it, and as the host's own processes name it.
"""

from collections.abc import Mapping

from nodeagent.model.ids import PciAddress
from nodeagent.model.values import Value


class DriverFile(Value, frozen=True):
    """One file of the driver."""

    path: str
    """Where a container sees it."""
    host_path: str
    """Where the host has it."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """Everything before the last part of its path."""
        return self.path.rpartition("/")[0]


class DriverNode(DriverFile, frozen=True):
    """One device node, with who may open it."""

    mode: int = 0o666
    gid: int = 0

    @property
    def group(self) -> int:
        """The group that a process needs to be in to open it; 0 where everybody may, or root alone."""
        is_for_all = self.mode & 0o006 == 0o006
        return 0 if is_for_all or self.mode & 0o060 != 0o060 else self.gid


class DriverLibrary(DriverFile, frozen=True):
    """One shared library of the driver."""

    soname: str = ""
    """The name that programs are linked against; empty when the library says none."""
    links: tuple[str, ...] = ()
    """Further names in the same directory that lead to it on the host, such as `libcuda.so`."""


class DriverFiles(Value, frozen=True):
    """The driver as it lies on this node, whatever GPUs there are."""

    version: str = ""
    libraries: tuple[DriverLibrary, ...] = ()
    files: tuple[DriverFile, ...] = ()
    """Programs, firmware and configuration files; containers may read them."""
    sockets: tuple[DriverFile, ...] = ()
    """Sockets of the driver's own daemons; containers may talk to them."""
    nodes: tuple[DriverNode, ...] = ()
    """Device nodes that exist now, of every kind that a specification may name."""
    drm_names: Mapping[PciAddress, tuple[str, ...]] = {}
    """`card1` and `renderD128` of each GPU that has them."""
    capability_minors: Mapping[str, int] = {}
    """MIG capability such as `gpu0/gi1/access` to the minor number of its node."""
    triplet: str = ""
    """The directory in which distributions of the Debian family keep libraries of this machine's kind."""
    problems: tuple[str, ...] = ()
    """What is there and cannot be used, each with its reason."""
    made_up: bool = False
    """Whether there is no driver and no device behind it, because the GPUs are simulated."""


class SpecContent(Value, frozen=True):
    """One file in a directory of specifications, as it lies there."""

    path: str
    content: bytes = b""
    problem: str = ""
    """Why it cannot be read; empty when it can."""
