"""Ports of the host's devices of any vendor."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodeagent.model.cdi import SpecContent
from nodeagent.model.devices import HostDevices, ScanWish


class DeviceScan(Protocol):
    """Scans the host's device nodes; bounded in time."""

    async def look(self, wish: ScanWish) -> HostDevices:
        """The devices requested.

        Raises:
            NodeagentError: The host does not answer.
        """
        ...

    async def wait_change(self) -> None:
        """Return when a device node requested in the last scan may have come or gone.

        Raises:
            NodeagentError: The host does not answer.
        """
        ...

    async def read_files(self, paths: Sequence[str]) -> Mapping[str, str]:
        """The texts of files below /sys; empty, or left out, for an unreadable file.

        Raises:
            NodeagentError: The host does not answer.
        """
        ...

    async def run_command(self, command: Sequence[str], timeout_seconds: float) -> str:
        """Run a command on the host; empty when it ends with 0 in time, else the failure."""
        ...


class ClassSpecs(Protocol):
    """Where specifications of classes lie, by file name."""

    async def read_specs(self) -> Sequence[SpecContent]:
        """Every file that a runtime would read there.

        Raises:
            NodeagentError: The files cannot be listed.
        """
        ...

    async def write_spec(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Write a file atomically.

        Raises:
            NodeagentError: The file cannot be written.
        """
        ...

    async def remove_spec(self, name: str) -> None:
        """Remove a file; fine when already gone.

        Raises:
            NodeagentError: The file cannot be removed.
        """
        ...
