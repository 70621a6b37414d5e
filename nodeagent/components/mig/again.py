"""When a failed layout is retried without a new request: once a missing GPU has come; pure.

Owns the memory of the layout that failed last. Refuses to retry after any other cause of failure, and to retry for ever
with a GPU coming and going: each try may move pods away.
"""

from collections.abc import Callable
from typing import Final

from nodeagent.components.mig.wish import Wish
from nodeagent.model.events import ConfigurationReloaded, GpuAppeared
from nodeagent.model.ids import GpuUuid

TRIES: Final = 5
"""How many tries a request gets; further tries take a new request."""


class Again:
    """The last failure, and when to retry."""

    def __init__(self, now: Callable[[], float], pause: Callable[[int], float]) -> None:
        """`pause` is how long a GPU is left alone after its return, by the number of tries."""
        self._now, self._pause = now, pause
        self._failed: tuple[Wish, str] | None = None
        self._gpus: tuple[GpuUuid, ...] | None = ()
        self._tries = 0
        self._due_at: float | None = None

    def forget(self) -> None:
        """Drop the failure: nothing has failed, or the cause may be mended."""
        self._failed, self._tries, self._due_at = None, 0, None

    def note_failed(self, wish: Wish, reason: str, gpus: tuple[GpuUuid, ...] | None) -> bool:
        """Note a failure at these GPUs, which other GPUs cannot mend; returns whether the failure is new.

        `None`: refused before anything was begun, so any new GPU may change the judgement.
        """
        before, self._failed = self._failed, (wish, reason)
        if before is None or before[0] != wish:
            self._tries = 0
        self._tries += gpus is not None
        self._gpus, self._due_at = gpus, None
        return gpus is not None or before != self._failed

    def note(self, fact: ConfigurationReloaded | GpuAppeared) -> None:
        """Note an event, perhaps the awaited event."""
        if isinstance(fact, ConfigurationReloaded):
            self.forget()
        elif self._failed is not None and self._tries < TRIES and (self._gpus is None or fact.gpu in self._gpus):
            # GPUs often come together, and a GPU that has just come may go again: the last arrival counts.
            self._due_at = self._now() + self._pause(1 + self._tries)

    def is_barred(self, wish: Wish) -> bool:
        """Whether the request failed, and is not to be tried now."""
        is_known = self._failed is not None and self._failed[0] == wish
        return is_known and (self._due_at is None or self._now() < self._due_at)

    def rest_seconds(self) -> float | None:
        """Seconds until the next try; `None` while a missing GPU is awaited."""
        return None if self._due_at is None else max(0.0, self._due_at - self._now())
