"""Whom to ask, in which order, for how long: a GPU that hangs costs the others one deadline, not their turn.

Owns the suspects, and which GPUs have answered the present worker.
Refuses to know what is asked.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import msgspec

from nodeagent.edge.nvml.connection import Connection
from nodeagent.edge.nvml.protocol import Answer, Request
from nodeagent.edge.nvml.suspects import Suspects
from nodeagent.model.errors import DriverStuck

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """Where the driver is, and how patient the agent is with it."""

    driver_root: str = ""
    library: str = ""
    """The library itself; empty: look below the driver root."""

    call_timeout_seconds: float = 5.0
    """For one GPU's answer when it may have to wake up first."""

    warm_timeout_seconds: float = 1.0
    """For a GPU that has answered this worker before: it takes milliseconds then."""

    leash_seconds: float = 0.25
    """For a GPU that hung the last time it was asked."""

    open_timeout_seconds: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the worker's otherwise empty environment."""


class GpuHung(DriverStuck):
    """One GPU's calls did not come back; the others may answer."""


class Asker:
    """Puts questions about single GPUs to the worker."""

    def __init__(self, connection: Connection, settings: NvmlSettings) -> None:
        self._connection, self._settings = connection, settings
        self._warm: set[int] = set()
        self._warm_opening = 0
        self.suspects = Suspects()

    def plan_order(self, indices: Iterable[int]) -> list[int]:
        """Trusted GPUs first, then the suspects whose turn has come; the other suspects are left out."""
        now = anyio.current_time()
        due = [index for index in sorted(indices) if self.suspects.is_due(index, now)]
        return sorted(due, key=self.suspects.is_suspect)

    async def ask(self, index: int, request: Request, decoder: msgspec.json.Decoder[Answer[T]], doing: str) -> T | None:
        """The worker's answer about the GPU at this index.

        Raises:
            GpuHung: this GPU did not let the worker answer in time.
            RequestFailed: the worker answered that it cannot be had.
            DriverError: the driver as a whole cannot be asked.
        """
        what = f"{doing} GPU {index}"
        try:
            answer = await self._connection.ask(
                request, decoder, self._decide_timeout(index), what, cold_seconds=self._decide_cold_timeout(index)
            )
        except DriverStuck as error:
            if error.call != what:
                raise  # the driver hung before it came to this GPU
            self.suspects.note_hang(index, str(error), anyio.current_time())
            raise GpuHung(what, error.deadline_seconds) from error
        self.suspects.note_answer(index)
        self._note_warm(index)
        return answer

    def _decide_timeout(self, index: int) -> float:
        if self.suspects.is_suspect(index):
            return self._settings.leash_seconds
        is_warm = index in self._warm and self._warm_opening == self._connection.opened
        return self._settings.warm_timeout_seconds if is_warm else self._settings.call_timeout_seconds

    def _decide_cold_timeout(self, index: int) -> float:
        is_suspect = self.suspects.is_suspect(index)
        return self._settings.leash_seconds if is_suspect else self._settings.call_timeout_seconds

    def _note_warm(self, index: int) -> None:
        if self._warm_opening != self._connection.opened:
            self._warm_opening = self._connection.opened
            self._warm.clear()
        self._warm.add(index)
