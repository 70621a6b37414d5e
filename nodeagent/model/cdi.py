"""The driver's files and device nodes for containers, and where the host keeps them.

Found by the host's edge, turned into specifications by the cdi component. Every path comes twice: as the driver itself
and containers name it, and as the host's own processes do.
"""

from collections.abc import Mapping

from nodeagent.model.ids import PciAddress
from nodeagent.model.nvidia import VENDOR
from nodeagent.model.values import Value
from nodeagent.model.vendor import Vendor


class DriverFile(Value, frozen=True):
    """A file of the driver."""

    path: str
    """Path in containers."""
    host_path: str
    """Path on the host."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def directory(self) -> str:
        """The path without its last part."""
        return self.path.rpartition("/")[0]


class DriverNode(DriverFile, frozen=True):
    """A device node, with its permissions."""

    mode: int = 0o666
    gid: int = 0

    @property
    def group(self) -> int:
        """The group whose members may open the device node; 0 where everybody may, or root alone."""
        is_for_all = self.mode & 0o006 == 0o006
        return 0 if is_for_all or self.mode & 0o060 != 0o060 else self.gid


class DriverLibrary(DriverFile, frozen=True):
    """A shared library of the driver."""

    soname: str = ""
    """The name by which programs link the library; empty when the library has none."""
    links: tuple[str, ...] = ()
    """Links to the library in the same directory of the host, such as `libcuda.so`."""


class DriverFiles(Value, frozen=True):
    """The driver as it lies on the node, whatever GPUs there are."""

    vendor: Vendor = VENDOR
    """The vendor of the driver."""
    version: str = ""
    libraries: tuple[DriverLibrary, ...] = ()
    files: tuple[DriverFile, ...] = ()
    """Programs, firmware and configuration files, for containers to read."""
    sockets: tuple[DriverFile, ...] = ()
    """Sockets of the driver's own daemons, for containers to talk to."""
    nodes: tuple[DriverNode, ...] = ()
    """Existing device nodes of every kind in a specification."""
    nodes_changed_seconds: float = 0.0
    """The time of the last change of one of `nodes`, by the host's clock; 0 without a node."""
    extra_nodes: tuple[DriverNode, ...] = ()
    """Existing device nodes of `containers.extra_devices`, by the paths of the setting."""
    drm_names: Mapping[PciAddress, tuple[str, ...]] = {}
    """`card1` and `renderD128` of each GPU with DRM nodes."""
    capability_minors: Mapping[str, int] = {}
    """MIG capability such as `gpu0/gi1/access` to the minor number of its device node."""
    triplet: str = ""
    """The directory of libraries of the machine's architecture in distributions of the Debian family."""
    problems: tuple[str, ...] = ()
    """Files and nodes that exist and cannot be used, each with its reason."""
    made_up: bool = False
    """Whether the GPUs are simulated, with no driver and no device behind the files."""


class SpecContent(Value, frozen=True):
    """A file in a directory of specifications, as it lies there."""

    path: str
    content: bytes = b""
    problem: str = ""
    """Why the file cannot be read; empty when readable."""
    written_seconds: float = 0.0
    """The time of the last writing, by the host's clock."""
