"""Brings limits files in line with the journal: a change of both may have been cut short, or written late.

Refuses to change more than the journal says: changed settings of limits hold from a container's next start on.
"""

from collections.abc import Callable, Sequence
from typing import Final

from nodeagent.components.fractions.decide import name_files
from nodeagent.components.fractions.reconcile_task import LockedJournal
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.journal import Binding
from nodeagent.model.ports import FractionFolders

RENEW_SECONDS: Final = 60.0
"""The first comparison matters most; later differences are rare, and each comparison reads all files."""


class LimitsSync:
    """A task of the component `fractions`."""

    def __init__(
        self, journal: LockedJournal, folders: FractionFolders, plan: Callable[[Binding], Sequence[FractionLimit]]
    ) -> None:
        """`plan` computes the limits of a binding."""
        self._journal, self._folders, self._plan = journal, folders, plan
        self._log = get_logger(component="fractions")

    async def run(self) -> None:
        """Compare all files with the journal now and then, until cancelled; the first time at once."""
        async for _ in Ticker(RENEW_SECONDS):
            for binding in tuple(self._journal.table.bindings.values()):
                if await self._is_outdated(binding):
                    await self._renew(binding.number)

    async def _is_outdated(self, binding: Binding) -> bool:
        try:
            return is_outdated(await self._folders.read(name_files(binding)), self._plan(binding))
        except NodeagentError:
            return True  # half written, perhaps: the library then has no limits for new processes

    async def _renew(self, number: int) -> None:
        async with self._journal.turn:
            binding = self._journal.table.bindings.get(number)
            if binding is None or not await self._is_outdated(binding):
                return  # the holder of the lock has written the file
            try:
                await self._folders.write(name_files(binding), self._plan(binding))
            except NodeagentError as error:
                self._log.warning("part_limits_not_renewed", pod=binding.pod.describe(), error=str(error))
            else:
                self._log.warning("part_limits_renewed", pod=binding.pod.describe(), container=binding.container)


def is_outdated(told: Sequence[FractionLimit], due: Sequence[FractionLimit]) -> bool:
    """Whether the file is to be written again.

    Settings hold from the start of a container on, so changed settings make no file outdated. Nor is a file outdated
    that is missing or names other GPUs: the next start writes the file.
    """
    if [each.gpu for each in told] != [each.gpu for each in due]:
        return False
    return any(
        one.memory_bytes != other.memory_bytes or (None not in (one.cores, other.cores) and one.cores != other.cores)
        for one, other in zip(told, due, strict=True)
    )
