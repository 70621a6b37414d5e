"""The slices of one node as a component sees them: kept as written, told by a watch, and at hand for somebody else."""

from collections.abc import AsyncGenerator, Callable, Mapping

import anyio
from msgspec.structs import replace

from nodeagent.model.errors import NodeagentError
from nodeagent.model.slices import SliceContent, StoredSlice


class SliceRefused(NodeagentError):
    """What the server says when the test wants it to."""


class FakeSliceApi:
    """The port `SliceApi`; `trouble` has every call refused, `keep` is what the server makes of a content."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredSlice] = {}
        self.writes: list[str] = []
        self.trouble: NodeagentError | None = None
        self.keep: Callable[[SliceContent], SliceContent] = lambda content: content
        self.version = 100
        self.lists = 0
        self.refusals = 0
        """How many of the next writes are refused."""
        self._changed = anyio.Event()

    async def follow_slices(self) -> AsyncGenerator[Mapping[str, StoredSlice], None]:
        self._check()
        self.lists += 1
        while True:
            told = dict(self.stored)
            yield told
            while told == self.stored:
                self._check()
                await self._changed.wait()

    async def read_node_uid(self) -> str:
        self._check()
        return "uid-of-node"

    async def create(self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str) -> StoredSlice:
        self._check_write()
        if name in self.stored:
            raise SliceRefused(f"{name} is there already")
        return self._put("create", name, content, numbers)

    async def update(
        self, stored: StoredSlice, content: SliceContent, numbers: tuple[int, int], node_uid: str
    ) -> StoredSlice:
        self._check_write()
        if self.stored.get(stored.name) != stored:
            raise SliceRefused(f"{stored.name} was changed")
        return self._put("update", stored.name, content, numbers)

    async def delete(self, stored: StoredSlice) -> None:
        self._check_write()
        self.writes.append(f"delete {stored.name[:4]}")
        self.stored.pop(stored.name, None)
        self._wake()

    def wipe(self, *names: str) -> None:
        """Somebody else takes slices away: those named, or all."""
        for name in names or tuple(self.stored):
            del self.stored[name]
        self._wake()

    def spoil(self, name: str, content: SliceContent | None = None) -> None:
        """Somebody else writes one."""
        self.version += 1
        self.stored[name] = replace(self.stored[name], content=content, version=str(self.version))
        self._wake()

    def fail(self, trouble: NodeagentError | None) -> None:
        """Refuse everything from now on, or nothing."""
        self.trouble = trouble
        self._wake()

    def _check_write(self) -> None:
        self._check()
        if self.refusals:
            self.refusals -= 1
            raise SliceRefused("not now")

    def _put(self, kind: str, name: str, content: SliceContent, numbers: tuple[int, int]) -> StoredSlice:
        self.version += 1
        self.writes.append(f"{kind} {name[:4]}")
        before = self.stored.get(name)
        self.stored[name] = StoredSlice(
            name=name,
            uid=before.uid if before is not None else f"uid-{self.version}",
            version=str(self.version),
            generation=numbers[0],
            slice_count=numbers[1],
            content=self.keep(content),
        )
        self._wake()
        return self.stored[name]

    def _check(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
