"""When a layout that failed is tried again without being asked for: once a GPU that was missed has come; pure.

Owns what is remembered of the layout that failed last. Refuses to try again what failed for another reason, and to go
on for ever with a GPU that comes and goes: each try may move pods away.
"""

from collections.abc import Callable
from typing import Final

from nodeagent.components.mig.wish import Wish
from nodeagent.model.events import ConfigurationReloaded, GpuAppeared
from nodeagent.model.ids import GpuUuid

TRIES: Final = 5
"""So often GPUs are cut for one wish and it fails; then only who asks for it again has it tried."""


class Again:
    """What failed last, and whether its time has come."""

    def __init__(self, now: Callable[[], float], pause: Callable[[int], float]) -> None:
        """`pause` is how long a GPU that has come is left alone, by how often it was tried."""
        self._now, self._pause = now, pause
        self._failed: tuple[Wish, str] | None = None
        self._gpus: tuple[GpuUuid, ...] | None = ()
        self._tries = 0
        self._due_at: float | None = None

    def forget(self) -> None:
        """Nothing has failed, or what was wrong may be mended."""
        self._failed, self._tries, self._due_at = None, 0, None

    def note_failed(self, wish: Wish, reason: str, gpus: tuple[GpuUuid, ...] | None) -> bool:
        """It failed at these GPUs, and what else comes mends nothing; returns whether that is news.

        `None`: it was refused before anything was begun, so that any GPU that comes may change the judgement.
        """
        before, self._failed = self._failed, (wish, reason)
        if before is None or before[0] != wish:
            self._tries = 0
        self._tries += gpus is not None
        self._gpus, self._due_at = gpus, None
        return gpus is not None or before != self._failed

    def note(self, fact: ConfigurationReloaded | GpuAppeared) -> None:
        """Something happened that may be what was waited for."""
        if isinstance(fact, ConfigurationReloaded):
            self.forget()
        elif self._failed is not None and self._tries < TRIES and (self._gpus is None or fact.gpu in self._gpus):
            # Several often come together, and one that has just come may go again: the last one counts.
            self._due_at = self._now() + self._pause(1 + self._tries)

    def is_barred(self, wish: Wish) -> bool:
        """Whether this failed, and is not to be tried now."""
        is_known = self._failed is not None and self._failed[0] == wish
        return is_known and (self._due_at is None or self._now() < self._due_at)

    def rest_seconds(self) -> float | None:
        """How long until something is to be tried; nothing while it waits for a GPU."""
        return None if self._due_at is None else max(0.0, self._due_at - self._now())
