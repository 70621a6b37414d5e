"""How the cost of the main operations grows: over GPUs, MIG devices, replicas and pods, each for itself.

Processor time of the thread, the smallest of several turns that go through all sizes: what the machine does meanwhile
makes a turn longer, never shorter.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Work = Callable[[], object]
TURNS = 7
TURN_SECONDS = 0.002
"""Shorter ones would measure the clock."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something the agent does, made for a node of any size."""

    name: str
    axis: str
    make: Callable[[int], Work]
    flat: bool = False
    """Whether it must cost the same at every size, not just in proportion."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Microseconds of processor time by size."""

    name: str
    axis: str
    sizes: tuple[int, ...]
    micros: tuple[float, ...]


AXES: Mapping[str, Sequence[int]] = {
    "GPUs": (1, 2, 4, 8, 16),
    "MIG devices": (7, 14, 28, 56, 112),
    "replicas": (25, 100, 400, 1600),
    "pods": (1, 8, 31, 125, 500),
}


def measure(operation: Operation, sizes: Sequence[int] | None = None, turns: int = TURNS) -> Curve:
    sizes = AXES[operation.axis] if sizes is None else sizes
    works = {size: operation.make(size) for size in sizes}
    with _undisturbed():
        repeats = {size: _count_repeats(work) for size, work in works.items()}
        best = dict.fromkeys(sizes, float("inf"))
        for _ in range(turns):
            for size, work in works.items():
                best[size] = min(best[size], _time(work, repeats[size]))
    return Curve(operation.name, operation.axis, tuple(sizes), tuple(1e6 * best[size] for size in sizes))


def _count_repeats(work: Work) -> int:
    """How often it must be done for a turn to be long enough; the first time may cost more and does not count."""
    work()
    repeats = 1
    while (once := _time(work, repeats)) * repeats < TURN_SECONDS:
        repeats = max(2 * repeats, min(10_000, int(TURN_SECONDS / max(once, 1e-7))))
    return repeats


def _time(work: Work, repeats: int) -> float:
    began = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - began) / repeats


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A collection would fall on whichever size is being measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
