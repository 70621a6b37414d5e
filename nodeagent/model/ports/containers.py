"""What is asked of the driver's files, CDI directories and container runtimes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from nodeagent.model.cdi import DriverFiles, SpecContent
from nodeagent.model.ids import GpuUuid
from nodeagent.model.parts import LibraryFiles, PartFolder, PartLimit, PartMeasure, UsageCheck
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
"""Makes of a file that others have edited one without our part, `None` for none at all; raises a NodeagentError."""


class DriverFileSource(Protocol):
    """The driver as it lies on the host's disk and in its /dev."""

    async def read_driver_files(self) -> DriverFiles:
        """Look once, bounded in time.

        Raises:
            NodeagentError: the file system does not answer.
        """
        ...


class SpecDirectories(Protocol):
    """The directories of CDI specifications; the agent writes in one of them."""

    async def read_specs(self) -> tuple[SpecContent, ...]:
        """Every file that a runtime would read, the lower directory first; but none that comes and goes with a pod.

        Raises:
            NodeagentError: the file system does not answer.
        """
        ...

    async def list_passing(self) -> tuple[str, ...]:
        """The names of those of ours that come and go with pods.

        Raises:
            NodeagentError: the file system does not answer.
        """
        ...

    def locate(self, name: str) -> str:
        """The path of a file of ours."""
        ...

    async def write_spec(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Put one in place, whole, with the directory where it is missing.

        What is made anew at the next start of its container need not be durable.

        Raises:
            NodeagentError: it cannot be written; the one before stays.
        """
        ...

    async def remove_spec(self, name: str) -> None:
        """Take one of ours away; fine when it is gone already.

        Raises:
            NodeagentError: it cannot be removed.
        """
        ...

    async def wait_change(self) -> None:
        """Return when a file that is read has come, gone or changed since the last reading."""
        ...


class PartSpecs(Protocol):
    """Specifications of single containers, each with parts of GPUs of its own."""

    async def write_part(
        self,
        names: tuple[str, ...],
        gpus: Sequence[GpuUuid],
        mounts: Sequence[ContainerMount],
        environment: Mapping[str, str],
    ) -> None:
        """Have each of these names mean these GPUs, with all that a container needs in order to use them.

        Raises:
            NodeagentError: a GPU cannot be described now, or the file cannot be written.
        """
        ...

    async def remove_part(self, name: str) -> None:
        """Have it, and those that were written with it as the first, mean nothing; fine when they do already.

        Raises:
            NodeagentError: the file cannot be removed.
        """
        ...


class PartFolders(Protocol):
    """What containers are told of their limits, and tell of their use: a folder for each."""

    async def prepare(self, name: str) -> None:
        """Have the folder be there with all that needs no limits, so that `write` takes less time.

        Raises:
            NodeagentError: it cannot be made.
        """
        ...

    async def write(self, name: str, limits: Sequence[PartLimit]) -> PartFolder:
        """Have the folder say this; a container that has it sees the change.

        Raises:
            NodeagentError: it cannot be written.
        """
        ...

    async def remove(self, name: str) -> None:
        """Take the folder away; fine when it is gone already.

        Raises:
            NodeagentError: it cannot be removed.
        """
        ...

    async def read(self, name: str) -> tuple[PartLimit, ...]:
        """What a container was told; nothing where there is no such folder.

        Raises:
            NodeagentError: it cannot be read, or is damaged.
        """
        ...

    async def measure(self, measures: Mapping[str, Sequence[PartMeasure | None]]) -> None:
        """Tell containers, by the names of their folders, how busy their GPUs are, in the order of their limits.

        A folder that is gone is passed over, and so is a GPU of which nothing is known.

        Raises:
            NodeagentError: some could not be told.
        """
        ...

    async def is_used(self, name: str) -> bool:
        """Whether the library has ever come up in a process of the container.

        Raises:
            NodeagentError: it cannot be read, or says what cannot be true.
        """
        ...

    async def list_names(self) -> tuple[str, ...]:
        """The folders that there are.

        Raises:
            NodeagentError: they cannot be listed.
        """
        ...

    async def bound_usage(self) -> UsageCheck:
        """Cut what containers have made larger than it may be; say which did, and whose files lie on the disk.

        Raises:
            NodeagentError: some cannot be looked at or cut.
        """
        ...


class PartLibrary(Protocol):
    """The library that holds containers to their parts."""

    async def install(self) -> LibraryFiles:
        """Have it on the host.

        Raises:
            NodeagentError: it cannot be put there.
        """
        ...


class ProgramInstaller(Protocol):
    """Puts a program of ours on the host."""

    async def install(self, path: Path) -> bool:
        """Have exactly our program there, executable; False when it was there already.

        Raises:
            NodeagentError: it cannot be put there.
        """
        ...

    async def check(self, path: Path) -> None:
        """Have it run there, as the container runtime would.

        Raises:
            NodeagentError: it does not run, it lacks something, or this process cannot know.
        """
        ...


class ShimHost(Protocol):
    """The runtime shim as it lies on the host: a program, what it looks things up in, and further names."""

    async def install(self, program: Path, names: Sequence[Path] = ()) -> bool:
        """Have exactly our program there, seen to run, and each of the names lead to it; False when all of it was so.

        Raises:
            NodeagentError: it cannot be put there, does not run, or one of the names is another program's.
        """
        ...

    async def read_marks(self) -> tuple[tuple[str, str], ...]:
        """Files of the host that say another thing after a reboot or with another driver: path and first line."""
        ...

    async def write(self, directory: Path, table: "ShimTable", on_missing: "OnMissing") -> bool:
        """Have exactly this there; False when it was there already.

        Raises:
            NodeagentError: it cannot be written; what is there stays.
        """
        ...

    async def remove(self, directory: Path) -> bool:
        """Take the table away; False when there was none.

        Raises:
            NodeagentError: it cannot be removed.
        """
        ...


class ContainerRuntime(Protocol):
    """The container runtime of this node. Every call is bounded in time and fails with a `NodeagentError` only."""

    async def read_evidence(self) -> RuntimeEvidence:
        """Which runtimes there are, and what the running ones say about themselves."""
        ...

    async def read_config(self, kind: RuntimeKind, main: str, extra: tuple[str, ...] = ()) -> ConfigTree:
        """The files that it reads at its next start, in its order, and those of `extra` that exist."""
        ...

    async def wait_change(self) -> None:
        """Return when one of the files read last has changed."""
        ...

    async def check(self, kind: RuntimeKind, executable: str, tree: ConfigTree) -> bool:
        """Have its own tool judge a configuration; False where it has none.

        Raises:
            NodeagentError: it would not accept it.
        """
        ...

    async def try_out(self, executable: str, main: str, tree: ConfigTree) -> TrialAnswer:
        """Start its own program on the side with files that were made harmless, ask it, and end it.

        `main` is the configuration that they were made of, beside which a place for them may be found.
        """
        ...

    async def apply(self, changes: Sequence[FileChange]) -> None:
        """Write all of them or none, and remember what was there before.

        Raises:
            NodeagentError: nothing was written.
        """
        ...

    async def undo(self, changes: Sequence[FileChange]) -> None:
        """Put back what was there before these changes."""
        ...

    async def restore(self, withdraw: Withdraw) -> Restored:
        """Give back everything that was ever changed, byte for byte; from files of others our part is withdrawn."""
        ...

    async def restart(self, command: Sequence[str]) -> None:
        """Restart it, and return when its service manager says that it has started, however long that takes.

        Whoever has waited enough cancels it, by which the command ends and the service manager goes on.

        Raises:
            NodeagentError: it did not start.
        """
        ...

    async def measure_start(self, command: Sequence[str], timeout_seconds: float) -> float:
        """How long what this command restarts took to start the last time, in seconds; zero where nobody knows."""
        ...

    async def list_daemons(self, kind: RuntimeKind) -> tuple[DaemonProcess, ...]:
        """The processes of its program, the oldest first."""
        ...
