"""Order and deadlines of questions: a GPU that hangs costs the other GPUs one deadline, not their answer.

Owns the suspects, and which GPUs have answered the present worker.
Refuses to know the content of questions.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import anyio
import msgspec
from msgspec import Struct, field

from nodeagent.edge.nvml.agent.connection import Connection, WorkerDied, WorkerStuck
from nodeagent.edge.nvml.agent.protocol import Answer, Request
from nodeagent.edge.nvml.agent.suspects import Suspects
from nodeagent.edge.nvml.shared import parse_step
from nodeagent.model.driver import PciFunction
from nodeagent.model.errors import DriverError, DriverStuck

T = TypeVar("T")


class NvmlSettings(Struct, frozen=True):
    """The driver's place, and the deadlines of driver calls."""

    driver_root: str = ""
    """Empty, or `/`, for a driver on the host itself."""

    library: str = ""
    """The library itself; empty: look below the driver root."""

    call_timeout_seconds: float = 5.0
    """For one GPU's answer when it may have to wake up first."""

    warm_timeout_seconds: float = 1.0
    """For a GPU that has answered this worker before: it takes milliseconds then."""

    leash_seconds: float = 0.25
    """For a GPU that hung the last time; doubled each time it hangs again, up to the time of a warm one."""

    open_timeout_seconds: float = 10.0
    """For a new worker to start, load the library and initialise it."""

    levels_seconds: Callable[[], float] = lambda: 0.0
    """How old the levels may be: what moves slowly is asked that much less often."""

    extras: Callable[[], tuple[str, ...]] = tuple
    """Readings that are wanted beside the ordinary sample, as `edge.nvml.worker.extras` names them."""

    list_functions: Callable[[], Awaitable[Sequence[PciFunction]]] | None = None
    """The GPUs that the PCI bus shows; without it nobody notices that the driver leaves one out."""

    sysfs: str = ""
    """Where the kernel shows the PCI bus; empty: its counts of errors are left out."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the worker's otherwise empty environment."""


class GpuSilent(Exception):
    """One GPU's calls did not come back, or ended the worker; other GPUs may answer.

    `error` is the symptom. `index` is `None` where several GPUs were asked and the silent GPU is unknown.
    """

    def __init__(self, error: DriverError, index: int | None) -> None:
        super().__init__(str(error))
        self.error, self.index = error, index


class Asker:
    """Puts questions about single GPUs to the worker."""

    def __init__(self, connection: Connection, settings: NvmlSettings) -> None:
        self._connection, self._settings = connection, settings
        self._warm: set[int] = set()
        self._persistent: set[int] = set()
        self._warm_opening = 0
        self.suspects = Suspects()

    def plan_order(self, indices: Iterable[int]) -> list[int]:
        """Trusted GPUs first, then suspects that are due; other suspects are left out."""
        now = anyio.current_time()
        due = [index for index in sorted(indices) if self.suspects.is_due(index, now)]
        return sorted(due, key=self.suspects.is_suspect)

    async def ask(self, index: int, request: Request, decoder: msgspec.json.Decoder[Answer[T]], doing: str) -> T | None:
        """The worker's answer about the GPU at an index.

        Raises:
            GpuSilent: The GPU kept the worker from an answer in time, or from any answer.
            RequestFailed: The worker answered with a failure.
            DriverError: The driver as a whole cannot be asked.
        """
        what = f"{doing} GPU {index}"
        try:
            answer = await self._connection.ask(
                request,
                decoder,
                self._decide_timeout(index, is_fresh=False),
                what,
                cold_seconds=self._decide_timeout(index, is_fresh=True),
            )
        except DriverStuck as error:
            if error.call != what:
                raise  # the driver hung before it came to this GPU
            raise self._note_silence(index, error) from error
        except WorkerDied as error:
            raise self._note_silence(index, error) from error
        self.suspects.note_answer(index)
        self._note_warm(index)
        return answer

    def list_awake(self, order: Iterable[int]) -> list[int]:
        """The GPUs for one joint question: GPUs that answered the present worker, or never sleep."""
        is_warm = self._warm_opening == self._connection.opened and not self._connection.is_fresh()
        awake = self._persistent | self._warm if is_warm else self._persistent
        return [index for index in order if index in awake and not self.suspects.is_suspect(index)]

    async def ask_together(
        self, indices: Collection[int], request: Request, decoder: msgspec.json.Decoder[Answer[T]], doing: str
    ) -> T | None:
        """The worker's answer about several GPUs, with a deadline for each GPU.

        Raises:
            GpuSilent: One of the GPUs kept the worker from an answer.
            RequestFailed: The worker answered with a failure.
            DriverError: The driver as a whole cannot be asked.
        """
        what = f"{doing} {len(indices)} GPUs"
        try:
            answer = await self._connection.ask(
                request, decoder, self._settings.warm_timeout_seconds, what, is_stepwise=True
            )
        except WorkerStuck as error:
            if error.call != what:
                raise  # the driver hung before it came to any GPU
            index = self._find_guilty(indices, error.step)
            told = error if index is None else DriverStuck(f"{doing} GPU {index}", error.deadline_seconds)
            raise self._note_silence(index, told) from error
        except WorkerDied as error:
            index = self._find_guilty(indices, error.step)
            told_died = error if index is None else WorkerDied(f"{doing} GPU {index}", error.how)
            raise self._note_silence(index, told_died) from error
        for index in indices:
            self._note_warm(index)
        return answer

    @staticmethod
    def _find_guilty(indices: Collection[int], step: str) -> int | None:
        index = parse_step(step)
        return index if index in indices else None

    def note_persistent(self, index: int, *, is_persistent: bool) -> None:
        """Note whether the driver keeps a GPU awake: such a GPU never needs time to wake up."""
        (self._persistent.add if is_persistent else self._persistent.discard)(index)

    def forget(self) -> None:
        """Forget all GPUs: another driver, or another number of GPUs."""
        self._warm.clear()
        self._persistent.clear()
        self.suspects.clear()

    def _note_silence(self, index: int | None, error: DriverError) -> GpuSilent:
        if index is not None:
            self.suspects.note_silence(index, str(error), anyio.current_time())
        return GpuSilent(error, index)

    def _decide_timeout(self, index: int, *, is_fresh: bool) -> float:
        """The deadline for a GPU; `is_fresh` for the first question of a new worker."""
        settings = self._settings
        if self.suspects.is_suspect(index):
            grown = settings.leash_seconds * 2.0 ** (self.suspects.count_silences(index) - 1)
            return min(grown, settings.warm_timeout_seconds)
        is_warm = not is_fresh and index in self._warm and self._warm_opening == self._connection.opened
        is_awake = is_warm or index in self._persistent
        return settings.warm_timeout_seconds if is_awake else settings.call_timeout_seconds

    def _note_warm(self, index: int) -> None:
        if self._warm_opening != self._connection.opened:
            self._warm_opening = self._connection.opened
            self._warm.clear()
        self._warm.add(index)
