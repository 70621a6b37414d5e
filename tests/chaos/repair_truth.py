"""Which GPU needs which repair, and how often each was reset: kept apart from the agent, which must find out. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from nodeagent.rules.repair.guard import RESETS_MAX
from tests.chaos.truth import Violated

WRONG: Final = "computes wrongly"
"""A GPU with this need has a driver that recommends nothing; a proof alone finds it."""
ACTIONS: Final[Mapping[str, int]] = {"reset": 1, "reboot": 2, "drain": 4, "bus": 6, WRONG: 0}
"""By what a GPU needs, what its driver recommends (field 230)."""
MENDED: Final[Mapping[str, Collection[str]]] = {
    "reset": ("reset", "drain", WRONG),
    "bus": ("reset", "drain", "bus", WRONG),
}
"""By the kind of a reset the needs that it ends; a reboot ends all."""
LATE_SECONDS: Final = 5.0
"""Whoever has opened a GPU's file so long ago must have been seen before a reset."""


class Opened(NamedTuple):
    """A process with the device file of a GPU open."""

    gpu: int
    since_seconds: float


class RepairTruth:
    """The GPUs of one node."""

    def __init__(self) -> None:
        self.needs: dict[int, str] = {}
        self.opened: dict[int, Opened] = {}
        """By process."""
        self.wrong: set[int] = set()
        """GPUs that have computed wrongly since their last reset, whoever has seen it."""
        self.week = 0
        self.counts: Counter[tuple[int, int]] = Counter()
        """Resets that the guard counts, by week and GPU."""
        self.resets = 0
        self._demanded: set[int] = set()

    def demand(self, gpus: Collection[int]) -> None:
        """The driver has refused a reset without these, which may be healthy."""
        self._demanded |= set(gpus)

    def check_reset(self, gpus: Collection[int], broken: Collection[int], pods: Iterable[str], now: float) -> None:
        """A reset begins; `broken` is what no repair of the truth is known for, `pods` who has these GPUs.

        Raises:
            Violated: it hits somebody.
        """
        healthy = set(gpus) - set(self.needs) - set(broken) - self.wrong
        if not healthy <= self._demanded:
            raise Violated(f"GPUs {sorted(healthy)} are healthy and are reset, together with {sorted(gpus)}")
        if holders := sorted(pods):
            raise Violated(f"GPUs {sorted(gpus)} are reset, and {holders} have them")
        for pid, opened in self.opened.items():
            if opened.gpu in gpus and now - opened.since_seconds > LATE_SECONDS:
                raise Violated(f"GPU {opened.gpu} is reset, and process {pid} has it open for long")

    def find_users(self, gpus: Collection[int]) -> list[int]:
        """The processes with one of these GPUs."""
        return [pid for pid, opened in self.opened.items() if opened.gpu in gpus]

    def count(self, gpus: Collection[int]) -> None:
        """An attempt at a reset that counts.

        Raises:
            Violated: the guard should have kept it back.
        """
        self.resets += 1
        for gpu in gpus:
            self.counts[self.week, gpu] += 1
            if self.counts[self.week, gpu] > RESETS_MAX:
                raise Violated(f"GPU {gpu} is reset {self.counts[self.week, gpu]} times within a week")

    def mend(self, gpus: Collection[int], kind: str) -> list[int]:
        """What such a reset makes of them: those that are well again."""
        mended = [gpu for gpu in gpus if self.needs.get(gpu) in MENDED[kind]]
        for gpu in mended:
            del self.needs[gpu]
        self.wrong = {gpu for gpu in self.wrong if gpu not in gpus or gpu in self.needs}
        return mended

    def forget_wrong(self) -> None:
        """GPUs that nobody has found to compute wrongly do it no more; one may be found a moment later."""
        self.needs = {gpu: need for gpu, need in self.needs.items() if need != WRONG}

    def reboot(self) -> None:
        """Nothing outlives it but the count."""
        self.needs.clear()
        self.wrong.clear()
        self.opened.clear()
        self._demanded.clear()
