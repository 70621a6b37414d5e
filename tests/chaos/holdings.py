"""Who holds what of which GPU through which door, kept apart from the agent. Pure.

A GPU is behind one door: whoever holds some of it excludes everybody who came in by another. By one door a device has
one holder, unless it is given in shares, which together are never more than there is.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.chaos.truth import Violated

ALL_CORES = 100


class Holding(NamedTuple):
    """What somebody has of one GPU."""

    door: str
    gpu: int
    device: str = ""
    """All of this device; empty for a share of the GPU."""
    cores: int = 0
    memory_bytes: int = 0
    is_mps: bool = False
    """Whether a daemon belongs to it."""


class Holdings:
    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        """Of each GPU."""
        self._held: dict[str, Holding] = {}

    def all(self) -> Mapping[str, Holding]:
        return self._held

    def take(self, who: str, what: Holding) -> None:
        """Somebody was given it.

        Raises:
            Violated: it was not there to be given.
        """
        for other, theirs in self._held.items():
            if theirs.gpu != what.gpu or other == who:
                continue
            if theirs.door != what.door:
                raise Violated(f"GPU {what.gpu} was given to {who} ({what.door}), and {other} has it ({theirs.door})")
            if _excludes(theirs, what):
                raise Violated(f"{who} was given {what.device or 'a share'} of GPU {what.gpu}, which {other} has")
        self._held[who] = what
        shares = [each for each in self._held.values() if each.gpu == what.gpu and not each.device]
        cores, memory_bytes = sum(each.cores for each in shares), sum(each.memory_bytes for each in shares)
        if cores > ALL_CORES or memory_bytes > self._memory_bytes:
            told = f"{cores} cores and {memory_bytes} bytes of GPU {what.gpu}"
            raise Violated(f"with {who} {told} are given, and there are {ALL_CORES} and {self._memory_bytes}")

    def give_back(self, who: str) -> None:
        self._held.pop(who, None)

    def list_of(self, gpu: int) -> tuple[str, ...]:
        return tuple(who for who, what in self._held.items() if what.gpu == gpu)


def _excludes(theirs: Holding, mine: Holding) -> bool:
    """A device has one holder; by claims a GPU is given whole or in shares, and not both."""
    if theirs.device and mine.device:
        return theirs.device == mine.device
    return theirs.device != mine.device


def find_part_faults(
    bound: Iterable[Mapping[str, Any]], held: Mapping[str, Holding], uuids: Mapping[int, str], memory_bytes: int
) -> list[str]:
    """What the agent's account of parts has wrong: lost, doubled, another one's, or more than a GPU has.

    `held` is by the uid of the pod; of those who have gone the agent may know for a while longer.
    """
    rows = [
        (one["pod"]["uid"], part["gpu"], part["cores"], part["memory_bytes"]) for one in bound for part in one["parts"]
    ]
    faults = []
    for uid, what in held.items():
        told = [row[1:] for row in rows if row[0] == uid]
        if told != [(uuids[what.gpu], what.cores, what.memory_bytes)]:
            faults.append(f"pod {uid} has {what}, and is told to have {told}")
    for uuid in {row[1] for row in rows}:
        cores, memory = (sum(row[place] for row in rows if row[1] == uuid) for place in (2, 3))
        if cores > ALL_CORES or memory > memory_bytes:
            faults.append(f"{uuid} is promised {cores} cores and {memory} bytes")
    return faults
