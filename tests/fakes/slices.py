"""The slices of one node as a component sees them: kept as written, told by a watch, and at hand for somebody else.

What it does is compared with the agent's own client in `tests/contract/apiserver/test_ports.py`.
"""

from collections.abc import AsyncGenerator, Callable, Mapping

import anyio
from msgspec.structs import replace

from nodeagent.edge.kube.slices import KubeDeviceClasses, KubeSlices
from nodeagent.model.errors import NodeagentError
from nodeagent.model.slices import DeviceClass, SliceContent, StoredSlice


class SliceRefused(NodeagentError):
    """What the server says when the test wants it to."""


class FakeSliceApi(KubeSlices):
    """The port `KubeSlices`; `trouble` has every call refused, `keep` is what the server makes of a content."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredSlice] = {}
        self.writes: list[str] = []
        self.rehearsals: list[str] = []
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

    async def rehearse(
        self, name: str, content: SliceContent, numbers: tuple[int, int], node_uid: str, stored: StoredSlice | None
    ) -> SliceContent | None:
        self._check_write()
        if self.stored.get(name) != stored:
            raise SliceRefused(f"{name} was changed")
        self.rehearsals.append(name[:4])
        return self.keep(content)

    async def delete(self, stored: StoredSlice) -> None:
        self._check_write()
        if self.stored.get(stored.name, stored) != stored:
            raise SliceRefused(f"{stored.name} was changed")
        self.writes.append(f"delete {stored.name[:4]}")
        self.stored.pop(stored.name, None)
        self._wake()

    def wipe(self, *names: str) -> None:
        """Somebody else takes slices away: those named, or all."""
        for name in names or tuple(self.stored):
            del self.stored[name]
        self._wake()

    def spoil(self, name: str, content: SliceContent | None = None) -> None:
        self.version += 1
        self.stored[name] = replace(self.stored[name], content=content, version=str(self.version))
        self._wake()

    def fail(self, trouble: NodeagentError | None) -> None:
        self.trouble = trouble
        self._wake()

    def _check_write(self) -> None:
        self._check()
        if self.refusals:
            self.refusals -= 1
            raise SliceRefused("not now")

    def _put(self, kind: str, name: str, content: SliceContent, numbers: tuple[int, int]) -> StoredSlice:
        self.writes.append(f"{kind} {name[:4]}")
        before = self.stored.get(name)
        kept = self.keep(content)
        written = StoredSlice(
            name=name,
            uid=before.uid if before is not None else f"uid-{self.version + 1}",
            version=before.version if before is not None else "",
            generation=numbers[0],
            slice_count=numbers[1],
            content=kept,
            taint_times=find_times(kept, before.taint_times if before is not None else {}),
        )
        if written != before:
            self.version += 1
            self.stored[name] = replace(written, version=str(self.version))
            self._wake()
        return self.stored[name]

    def _check(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class FakeDeviceClasses(KubeDeviceClasses):
    """The cluster's device classes, told anew at each change; `trouble` has the watch end and every other refused."""

    def __init__(self) -> None:
        self.classes: dict[str, DeviceClass] = {}
        self.trouble: NodeagentError | None = None
        self.lists = 0
        self._changed = anyio.Event()

    async def follow_classes(self) -> AsyncGenerator[Mapping[str, DeviceClass], None]:
        self.lists += 1
        while True:
            if self.trouble is not None:
                raise self.trouble
            changed = self._changed
            yield dict(self.classes)
            await changed.wait()

    def put(self, *classes: DeviceClass) -> None:
        """These classes are all that there are."""
        self.classes = {one.name: one for one in classes}
        self._wake()

    def fail(self, trouble: NodeagentError | None) -> None:
        self.trouble = trouble
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def find_times(content: SliceContent, known: Mapping[str, str]) -> dict[str, str]:
    """Since when each taint has been there: a time that is said again stays, another is given by the server."""
    names = [
        f"{device.name} {taint.key} {taint.value} {taint.effect}"
        for device in content.devices
        for taint in device.taints
    ]
    return {name: known.get(name, "2026-01-01T12:00:00Z") for name in names}
