"""What is asked of the host about devices of any vendor."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodeagent.model.cdi import SpecContent
from nodeagent.model.devices import HostDevices, ScanWish


class DeviceScan(Protocol):
    """Looks at the host's device nodes; bounded in time."""

    async def look(self, wish: ScanWish) -> HostDevices:
        """What there is of what is wished.

        Raises:
            NodeagentError: the host does not answer.
        """
        ...

    async def wait_change(self) -> None:
        """Return when a node that the last look was for may have come or gone.

        Raises:
            NodeagentError: the host does not answer.
        """
        ...

    async def read_files(self, paths: Sequence[str]) -> Mapping[str, str]:
        """The texts of files below /sys; empty, or left out, for one that cannot be read.

        Raises:
            NodeagentError: the host does not answer.
        """
        ...

    async def run_command(self, command: Sequence[str], timeout_seconds: float) -> str:
        """Run it on the host; empty when it ends with 0 in time, else what was wrong."""
        ...


class ClassSpecs(Protocol):
    """Where specifications of classes lie, by file name."""

    async def read_specs(self) -> Sequence[SpecContent]:
        """Every file that a runtime would read there.

        Raises:
            NodeagentError: they cannot be listed.
        """
        ...

    async def write_spec(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Put one in place, whole.

        Raises:
            NodeagentError: it cannot be written.
        """
        ...

    async def remove_spec(self, name: str) -> None:
        """Take one away; fine when it is gone already.

        Raises:
            NodeagentError: it cannot be removed.
        """
        ...
