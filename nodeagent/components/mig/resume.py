"""Resumes changes begun by an earlier process, at once or when their GPU has come.

Owns the unfinished changes. Refuses to retry a change before its GPU has come anew.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from nodeagent.components.mig.around import Around
from nodeagent.components.mig.changing import HALF, Changer
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change


class Resumer:
    """Changes still under way, of layouts and of single devices."""

    def __init__(
        self,
        around: Around,
        changer: Changer,
        take_back: Callable[[], Awaitable[Mapping[GpuUuid, str]]],
        tell: Callable[[Change], None],
    ) -> None:
        """`take_back` undoes single devices not given out yet, and returns failures by GPU."""
        self._around, self._changer, self._take_back, self._tell = around, changer, take_back, tell
        self._left: dict[GpuUuid, Change] = {}
        self._come: set[GpuUuid] = set()

    async def finish(self, changes: Sequence[Change]) -> None:
        """At the start: finish each change begun before."""
        for gpu, problem in (await self._take_back()).items():
            self._around.set_condition(HALF, gpu, problem)
        for change in changes:
            await self._resume(change)

    def note_come(self, gpu: GpuUuid) -> None:
        """Note a GPU not there before."""
        self._come.add(gpu)

    async def finish_come(self) -> None:
        """Finish the changes of GPUs returned since."""
        due = [self._left.pop(gpu) for gpu in sorted(self._come & self._left.keys())]
        self._come.clear()
        for change in due:
            await self._resume(change)

    async def _resume(self, change: Change) -> None:
        self._tell(change)
        if await self._changer.finish(change):
            self._left[change.gpu] = change
