"""Measures the memory of foreign programs on GPUs given in fractions: nothing may be promised from that memory.

Owns the condition `part-foreign-use`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nodeagent.components.fractions.foreign import (
    ForeignProcess,
    describe_foreign,
    find_foreign,
    list_unnamed_pods,
    sum_foreign,
)
from nodeagent.components.fractions.poll_task import SourcePoller
from nodeagent.components.fractions.reconcile_task import TEND_SECONDS, LockedJournal
from nodeagent.config.live import LiveSettings
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.gpu import Gpu

if TYPE_CHECKING:
    from nodeagent.model.ids import GpuUuid


class ForeignUse:
    """A task of the component `fractions`."""

    def __init__(
        self,
        conditions: Conditions,
        live: LiveSettings,
        journal: LockedJournal,
        poller: SourcePoller,
        list_gpus: Callable[[], Sequence[Gpu]],
        wake: Callable[[], None],
    ) -> None:
        """`list_gpus` has the driver's GPUs given in fractions; `wake` is called when the use has changed."""
        self._conditions, self._live, self._journal, self._poller = conditions, live, journal, poller
        self._list_gpus, self._wake = list_gpus, wake
        self.by_gpu: Mapping[GpuUuid, int] = {}
        """By GPU the bytes used by foreign programs."""
        self._found: tuple[ForeignProcess, ...] = ()
        self._pods: Mapping[str, str] = {}
        """The names of pods with foreign programs, by uid."""
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Measure now and then, until cancelled."""
        async for _ in Ticker(TEND_SECONDS):
            await self._measure()

    async def _measure(self) -> None:
        processes = await self._poller.read_processes()
        if processes is None:
            return
        ignored = self._live.now.fractions.ignored_processes
        self._found = find_foreign(self._list_gpus(), self._journal.table, *processes, ignored, self._found)
        unnamed = list_unnamed_pods(self._found, self._pods)
        if unnamed and (containers := (await self._poller.ask_runtime(None))[0]) is not None:
            self._pods = {one.pod_uid: f"{one.namespace}/{one.pod}" for one in containers if one.pod}
        self._conditions.replace("part-foreign-use", describe_foreign(self._found, self._pods))
        foreign = sum_foreign(self._found)
        if foreign != self.by_gpu:
            self.by_gpu = foreign
            self._log.info("foreign_use_changed", gpus={str(gpu): used for gpu, used in foreign.items()})
            self._wake()
