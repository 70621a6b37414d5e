"""Ports of the driver's files, CDI directories and container runtimes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from nodeagent.model.cdi import DriverFiles
from nodeagent.model.fractions import FractionLimit, LibraryFiles, LimitsFolder, MeasuredUtilization, UsageCheck
from nodeagent.model.ids import GpuUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.runtime import (
    ConfigTree,
    DaemonProcess,
    EditedFile,
    FileChange,
    Restored,
    RuntimeEvidence,
    RuntimeKind,
    TrialAnswer,
)

if TYPE_CHECKING:
    from nodeagent.model.shim import OnMissing, ShimTable

Withdraw: TypeAlias = Callable[[EditedFile], bytes | None]
"""Makes a file edited by others free of the agent's settings, `None` for no file at all; raises a NodeagentError."""


class DriverFileSource(Protocol):
    """The driver as it lies on the host's disk and in its /dev."""

    async def read_driver_files(self, extra_nodes: Sequence[str] = ()) -> DriverFiles:
        """Look once, bounded in time, also for device nodes at further paths of the host."""
        ...


class FractionSpecs(Protocol):
    """Specifications of single containers, each with its own fractions of GPUs."""

    async def write_fraction(
        self,
        names: tuple[str, ...],
        gpus: Sequence[GpuUuid],
        mounts: Sequence[ContainerMount],
        environment: Mapping[str, str],
    ) -> None:
        """Make each of these CDI names stand for these GPUs, with everything else that a container needs for them."""
        ...

    async def remove_fraction(self, name: str) -> None:
        """Remove a CDI name, and the names written together with it after it; fine when already gone."""
        ...


class DeviceFractionSpecs(FractionSpecs, Protocol):
    """Specifications of single containers, each with its own fractions of a class's devices."""

    async def list_fractions(self) -> tuple[str, ...]:
        """The first CDI name of each specification."""
        ...


class FractionFolders(Protocol):
    """Folders with limits and usage files, a folder for each container."""

    async def prepare(self, name: str) -> None:
        """Make the folder with everything independent of limits, so that `write` takes less time."""
        ...

    async def write(self, name: str, limits: Sequence[FractionLimit]) -> LimitsFolder:
        """Write the limits into the folder; a container with the folder sees the change."""
        ...

    async def remove(self, name: str) -> None:
        """Remove the folder; fine when already gone."""
        ...

    async def read(self, name: str) -> tuple[FractionLimit, ...]:
        """The limits in a folder; empty where there is no such folder."""
        ...

    async def measure(self, measures: Mapping[str, Sequence[MeasuredUtilization | None]]) -> None:
        """Write GPU utilization for containers, by the names of their folders, in the order of their limits.

        A folder already gone is skipped, and so is a GPU without a reading.
        """
        ...

    async def is_used(self, name: str) -> bool:
        """Whether the library has ever come up in a process of the container."""
        ...

    async def list_names(self) -> tuple[str, ...]:
        """Names of the existing folders."""
        ...

    async def bound_usage(self) -> UsageCheck:
        """Cut usage files enlarged by containers; report the enlarged files, and the files on the node's disk."""
        ...


class VgpuLibrary(Protocol):
    """The library that holds containers to their fractions."""

    async def install(self) -> LibraryFiles:
        """Install the library on the host."""
        ...


class ReceiptFiles(Protocol):
    """Folders that containers have mounted read-only, a folder for each container or claim."""

    def locate(self, name: str) -> str:
        """The path of a folder on the host, whether the folder exists or not."""
        ...

    async def open(self, name: str, files: Mapping[str, bytes], points: Collection[tuple[str, bool]]) -> None:
        """Make a folder with files, and with places for other mounts: of each whether the place is a directory."""
        ...

    async def write(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        """Make the folders of these names, and replace their files where the content differs.

        A failure in one folder keeps no other folder from its files.
        """
        ...

    async def read(self) -> Mapping[str, Mapping[str, bytes]]:
        """The files in each folder; an unreadable file is left out."""
        ...

    async def list_names(self) -> Collection[str]:
        """The names of existing folders."""
        ...

    async def remove(self, name: str) -> None:
        """Remove a folder; fine when already gone."""
        ...


class ContainerReceipts(Protocol):
    """Receipts for containers about to start."""

    async def open_receipt(
        self, name: str, devices: Sequence[str], mounts: Sequence[ContainerMount]
    ) -> tuple[ContainerMount, ...]:
        """The receipt's mount, to stand before the container's other mounts; none where containers get no receipt.

        A receipt that cannot be written is reported, and keeps no container from its start.
        """
        ...


class ShimHost(Protocol):
    """The runtime shim as it lies on the host: a program, its table, and further names."""

    async def install(self, program: Path, names: Sequence[Path] = ()) -> bool:
        """Install the agent's exact program, checked to run, with links of all names; False when already so."""
        ...

    async def read_marks(self) -> tuple[tuple[str, str], ...]:
        """Files of the host with other content after a reboot or with another driver: path and first line."""
        ...

    async def write(self, directory: Path, table: "ShimTable", on_missing: "OnMissing") -> bool:
        """Write the table; False when already there.

        Raises:
            NodeagentError: The table cannot be written; the table before stays.
        """
        ...

    async def remove(self, directory: Path) -> bool:
        """Remove the table; False when there was none."""
        ...


class ContainerRuntime(Protocol):
    """The container runtime of the node. Every call is bounded in time and fails with a `NodeagentError` only."""

    async def read_evidence(self) -> RuntimeEvidence:
        """The runtimes of the node, with the answers of the running ones."""
        ...

    async def read_config(self, kind: RuntimeKind, main: str, extra: tuple[str, ...] = ()) -> ConfigTree:
        """The files of the runtime's next start, in its order, and the existing files of `extra`."""
        ...

    async def wait_change(self) -> None:
        """Return when a file read last has changed."""
        ...

    async def check(self, kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
        """Check a configuration by the runtime's own tool; False where it has none."""
        ...

    async def try_out(self, executable: str, main: str, tree: ConfigTree) -> TrialAnswer:
        """Start the runtime's own program on the side with files made harmless, ask for its status, and end it.

        `main` is the configuration from which the files were made; scratch space may be found beside it.
        """
        ...

    async def apply(self, changes: Sequence[FileChange]) -> None:
        """Write all files or none, and remember their content before."""
        ...

    async def undo(self, changes: Sequence[FileChange]) -> None:
        """Restore the content before these changes."""
        ...

    async def restore(self, withdraw: Withdraw) -> Restored:
        """Restore every changed file, byte for byte; the agent's settings are withdrawn from files edited by others."""
        ...

    async def restart(self, command: Sequence[str]) -> None:
        """Restart the runtime, and return when its service manager reports the start, however long the start takes.

        A caller tired of waiting cancels the call: the command ends and the service manager goes on.
        """
        ...

    async def measure_start(self, command: Sequence[str], timeout_seconds: float) -> float:
        """How long the last start of the restarted service took, in seconds; zero where unknown."""
        ...

    async def list_daemons(self, kind: RuntimeKind) -> tuple[DaemonProcess, ...]:
        """The processes of the runtime's program, the oldest first."""
        ...
