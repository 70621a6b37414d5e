"""Polls the containers' usage files: a file that a container has made larger is cut.

Owns the two conditions about the files. Refuses to make a file shorter than the vGPU library's mapping.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from anyio.abc import TaskStatus

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.ticker import Ticker
from nodeagent.core.log.lines import get_logger
from nodeagent.model.claims import ReadyClaims
from nodeagent.model.errors import NodeagentError
from nodeagent.model.journal import FractionTable
from nodeagent.model.ports import FractionFolders
from nodeagent.model.wording import render_bytes

POLL_INTERVAL_SECONDS: Final = 5.0
"""The longest time for a container to fill the disk, where no file system of its own bounds the file."""


class UsageFiles:
    """The component."""

    name = "usage_files"

    def __init__(self, bus: Bus, conditions: Conditions, folders: Sequence[FractionFolders]) -> None:
        """`folders` are the folders of all givers of fractions: to containers, and by claims."""
        self._bus, self._conditions, self._folders = bus, conditions, folders
        self._problem = ""
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Look at all files, the first time at once, until cancelled."""
        task_status.started()
        async for _ in Ticker(POLL_INTERVAL_SECONDS):
            await self._look()

    async def _look(self) -> None:
        grown, unbounded, problem = dict[str, int](), list[str](), ""
        for folders in self._folders:
            try:
                check = await folders.bound_usage()
            except NodeagentError as error:
                problem = str(error)
                continue
            grown.update(check.grown)
            unbounded += check.unbounded
        if problem and problem != self._problem:
            self._log.warning("usage_files_not_bounded", reason=problem)
        self._problem = problem
        owners = self._name_owners() if grown else {}
        self._conditions.replace(
            "part-usage-grown",
            {
                name: f"{owners.get(name, name)}: its file had grown to {render_bytes(size)} and was cut"
                for name, size in sorted(grown.items())
            },
        )
        detail = f"those of {len(unbounded)} containers or claims lie on the disk" if unbounded else ""
        self._conditions.show("part-usage-unbounded", detail)

    def _name_owners(self) -> Mapping[str, str]:
        """The container or claim of each folder."""
        fractions, claims = self._bus.read(FractionTable), self._bus.read(ReadyClaims)
        owners = dict[str, str]()
        if fractions is not None:
            for binding in fractions.bindings.values():
                name = binding.cdi_name.rpartition("=")[2] or f"b{binding.number}"
                owners[name] = binding.pod.describe(binding.container)
        if claims is not None:
            owners.update({uid: f"claim {claim.describe()}" for uid, claim in claims.claims.items()})
        return owners
