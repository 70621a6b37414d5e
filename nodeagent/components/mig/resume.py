"""Goes on with changes that another life of the agent has begun, at once or when their GPU has come.

Owns which of them could not be finished. Refuses to try one again before its GPU has come anew.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from nodeagent.components.mig.around import Around
from nodeagent.components.mig.changing import HALF, Changer
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change


class Resumer:
    """What is still under way, whoever it was for."""

    def __init__(
        self,
        around: Around,
        changer: Changer,
        take_back: Callable[[], Awaitable[Mapping[GpuUuid, str]]],
        tell: Callable[[Change], None],
    ) -> None:
        """`take_back` undoes single devices that nobody was given yet, and says of which GPUs it could not."""
        self._around, self._changer, self._take_back, self._tell = around, changer, take_back, tell
        self._left: dict[GpuUuid, Change] = {}
        self._come: set[GpuUuid] = set()

    async def finish(self, changes: Sequence[Change]) -> None:
        """At the start: everything that is not over."""
        for gpu, problem in (await self._take_back()).items():
            self._around.set_condition(HALF, gpu, problem)
        for change in changes:
            await self._resume(change)

    def note_come(self, gpu: GpuUuid) -> None:
        """It was not there before."""
        self._come.add(gpu)

    async def finish_come(self) -> None:
        """Those whose GPU has come since."""
        due = [self._left.pop(gpu) for gpu in sorted(self._come & self._left.keys())]
        self._come.clear()
        for change in due:
            await self._resume(change)

    async def _resume(self, change: Change) -> None:
        self._tell(change)
        if await self._changer.finish(change):
            self._left[change.gpu] = change
