"""The GPUs that are to change for one layout: all are hidden at once, and whichever nobody has is next.

Owns the order. Refuses to let one that somebody has hold up the others.
"""

from collections.abc import AsyncIterator, Mapping

from nodeagent.components.mig.around import Around
from nodeagent.components.mig.carry import End
from nodeagent.components.mig.changing import Changer, Due
from nodeagent.components.mig.wish import Wish
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.rules.mig.wanted import Wanted


class Row:
    """As long as it is not empty, a GPU is left to change; closed, what is left is offered again."""

    def __init__(self, around: Around, changer: Changer, wish: Wish, wanted: Mapping[GpuUuid, Wanted]) -> None:
        """Nothing is hidden yet."""
        self._around, self._changer, self._wish = around, changer, wish
        self._wanted = dict(wanted)
        self._dues: list[Due] = []
        self.at: GpuUuid = next(iter(wanted))
        """The GPU that was looked at last: what fails, fails at this one."""

    def __aiter__(self) -> AsyncIterator[tuple[Gpu, End]]:
        """Change the GPUs of the row, one after the other."""
        return self

    async def __anext__(self) -> tuple[Gpu, End]:
        """Change the first GPU that nobody has or uses, once there is one, and say how that ended.

        Raises:
            WishChanged: it must be judged anew.
            NodeagentError: nothing was changed at this GPU.
        """
        if self._wanted:
            await self._line_up()
        if not self._dues:
            raise StopAsyncIteration
        due = await self._find_free()
        end = await self._changer.change(due, self._wish)
        self._dues.remove(due)
        self._changer.leave(due)
        return due.gpu, end

    async def _line_up(self) -> None:
        while self._wanted:
            self.at = next(iter(self._wanted))
            self._dues.append(self._changer.line_up(self._around.find_gpu(self.at), self._wanted.pop(self.at)))
        await self._changer.wait_told(self._dues)

    async def _find_free(self) -> Due:
        while True:
            for due in self._dues:
                self.at = due.gpu.uuid
                due.gpu = self._around.find_gpu(self.at)
                if await self._changer.clear(due, self._wish):
                    return due
            await self._changer.rest(self._dues)

    def close(self) -> None:
        """Offer as it is what has not changed."""
        for due in self._dues:
            self._changer.leave(due)
