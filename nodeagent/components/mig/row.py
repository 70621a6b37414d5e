"""The order in which GPUs change: for one layout, and after a restart of the agent.

For a layout all GPUs are hidden at once, and the next to change is any unused GPU; changes begun by an earlier process
are resumed at once or when their GPU has come. Refuses to let a GPU in use hold up the others, and to retry a change
before its GPU has come anew.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from typing import Self

from nodeagent.components.mig.apply import Changer, Due
from nodeagent.components.mig.carry import End
from nodeagent.components.mig.report_task import HALF, MigReporter
from nodeagent.components.mig.request import LayoutRequest
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Change
from nodeagent.rules.mig.wanted import Wanted


class Row:
    """The GPUs in line, changed one after the other; GPUs left at the close are offered again.

    While a layout is judged anew, GPUs in line stay hidden: no pod must be given a GPU about to be cut.
    """

    def __init__(self, reporter: MigReporter, changer: Changer) -> None:
        """Hide no GPU yet."""
        self._reporter, self._changer = reporter, changer
        self._request = LayoutRequest()
        self._wanted: dict[GpuUuid, Wanted] = {}
        self._dues: list[Due] = []
        self._kept: dict[GpuUuid, Due] = {}
        """GPUs hidden since before the new judgement."""
        self.at = GpuUuid("")
        """The GPU handled last: a failure is reported for this GPU."""

    def begin(self, request: LayoutRequest, wanted: Mapping[GpuUuid, Wanted]) -> Self:
        """Begin to change these GPUs; other GPUs kept in line are offered again."""
        self._request, self._wanted, self.at = request, dict(wanted), next(iter(wanted))
        self._offer_kept(but=wanted)
        return self

    def keep(self) -> None:
        """Keep unchanged GPUs hidden until the layout is judged anew."""
        self._kept.update((due.gpu.uuid, due) for due in self._dues)
        self._dues.clear()

    def __aiter__(self) -> AsyncIterator[tuple[Gpu, End]]:
        """Change the GPUs of the row, one after the other."""
        return self

    async def __anext__(self) -> tuple[Gpu, End]:
        """Change the first unused GPU, once there is an unused GPU, and return the end of the change.

        Raises:
            RequestSuperseded: The GPU must be judged anew.
            NodeagentError: Nothing was changed at the GPU.
        """
        if self._wanted:
            await self._line_up()
        if not self._dues:
            raise StopAsyncIteration
        due = await self._find_free()
        end = await self._changer.change(due, self._request)
        self._dues.remove(due)
        self._changer.leave(due)
        return due.gpu, end

    async def _line_up(self) -> None:
        while self._wanted:
            self.at = next(iter(self._wanted))
            self._dues.append(self._changer.line_up(self._reporter.find_gpu(self.at), self._wanted.pop(self.at)))
            self._kept.pop(self.at, None)
        await self._changer.wait_withdrawn(self._dues)

    async def _find_free(self) -> Due:
        while True:
            for due in self._dues:
                self.at = due.gpu.uuid
                due.gpu = self._reporter.find_gpu(self.at)
                if await self._changer.clear(due, self._request):
                    return due
            await self._changer.rest(self._dues)

    def close(self) -> None:
        """Offer unchanged GPUs as they are, unless kept in line."""
        for due in self._dues:
            self._changer.leave(due)
        self._dues.clear()

    def end(self) -> None:
        """Offer the kept GPUs, too, as no GPU is to change."""
        self._offer_kept()

    def _offer_kept(self, but: Container[GpuUuid] = ()) -> None:
        for uuid in [uuid for uuid in self._kept if uuid not in but]:
            self._changer.leave(self._kept.pop(uuid))


class Resumer:
    """Changes still under way, of layouts and of single devices."""

    def __init__(
        self,
        reporter: MigReporter,
        changer: Changer,
        take_back: Callable[[], Awaitable[Mapping[GpuUuid, str]]],
        tell: Callable[[Change], None],
    ) -> None:
        """`take_back` undoes single devices not given out yet, and returns failures by GPU."""
        self._reporter, self._changer, self._take_back, self._tell = reporter, changer, take_back, tell
        self._left: dict[GpuUuid, Change] = {}
        self._come: set[GpuUuid] = set()

    async def finish(self, changes: Sequence[Change]) -> None:
        """At the start: finish each change begun before."""
        for gpu, problem in (await self._take_back()).items():
            self._reporter.set_condition(HALF, gpu, problem)
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
