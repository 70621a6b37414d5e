"""The cdi component's surroundings that do as the test says."""

from collections.abc import Sequence
from pathlib import Path

import anyio
from msgspec.structs import replace

from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.edge.host.files.host_program import HostProgram
from nodeagent.model.cdi import DriverFiles, DriverNode, SpecContent
from nodeagent.model.errors import NodeagentError
from nodeagent.rules.cdi_names import CLAIM_FILES, FRACTION_FILES


class FakeDriverFiles:
    """Shows the driver it was told to show."""

    def __init__(self, files: DriverFiles) -> None:
        self.files = files
        self.extra_nodes: tuple[DriverNode, ...] = ()

    async def read_driver_files(self, extra_nodes: Sequence[str] = ()) -> DriverFiles:
        await anyio.lowlevel.checkpoint()
        return replace(self.files, extra_nodes=tuple(each for each in self.extra_nodes if each.path in extra_nodes))


class FakeDirectories(SpecFiles):
    """Directories in memory, with other people who write in them."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.broken = ""
        self.writes: list[str] = []
        self.removals: list[str] = []
        self.readings = 0
        self._read: dict[str, bytes] = {}

    def meddle(self, path: str, content: bytes | None) -> None:
        """Somebody else writes or (with `None`) removes a file."""
        if content is None:
            del self.contents[path]
        else:
            self.contents[path] = content

    def locate(self, name: str) -> str:
        return f"/var/run/cdi/{name}"

    async def read_specs(self) -> tuple[SpecContent, ...]:
        await self._work()
        self.readings += 1
        self._read = self._list_standing()
        return tuple(SpecContent(path=path, content=content) for path, content in sorted(self._read.items()))

    async def list_passing(self) -> tuple[str, ...]:
        await self._work()
        passing = self.contents.keys() - self._list_standing().keys()
        return tuple(path.removeprefix(self.locate("")) for path in passing)

    async def write_spec(self, name: str, content: bytes, *, durable: bool = True) -> None:
        await self._work()
        self.writes.append(name)
        self.contents[self.locate(name)] = content

    async def remove_spec(self, name: str) -> None:
        await self._work()
        self.removals.append(name)
        self.contents.pop(self.locate(name), None)

    async def wait_change(self) -> None:
        await self._work()
        while self._read == self._list_standing():  # noqa: ASYNC110  # as the real one does
            await anyio.sleep(0.5)

    def _list_standing(self) -> dict[str, bytes]:
        """Without those that come and go with pods."""
        passing = (self.locate(FRACTION_FILES), self.locate(CLAIM_FILES))
        return {path: content for path, content in self.contents.items() if not path.startswith(passing)}

    async def _work(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise NodeagentError(self.broken)


class FakeHook(HostProgram):
    """A host on which the program is put."""

    def __init__(self) -> None:
        self.installed: list[Path] = []
        self.read_only = ""
        self.unfit = ""
        self.named: list[tuple[Path, Path | None]] = []
        self.name_taken = ""

    async def install(self, path: Path) -> bool:
        await anyio.lowlevel.checkpoint()
        if self.read_only:
            raise NodeagentError(self.read_only)
        if path in self.installed:
            return False
        self.installed.append(path)
        return True

    async def check(self, path: Path) -> None:
        await anyio.lowlevel.checkpoint()
        assert path in self.installed
        if self.unfit:
            raise NodeagentError(self.unfit)

    async def name(self, directory: Path, hook: Path | None) -> bool:
        await anyio.lowlevel.checkpoint()
        if self.name_taken:
            raise NodeagentError(self.name_taken)
        is_new = (directory, hook) not in self.named
        self.named.append((directory, hook))
        return is_new
