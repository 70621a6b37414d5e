"""By which door each GPU is given out: whole, in fractions, by claims, or not at all."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.values import Value

_NAMED: Final = 4
"""Holders that a sentence names one by one."""


class Door(StrEnum):
    """The ways in which a GPU can be given out; at each moment it is one of them."""

    WHOLE = "whole"
    """By the device plugin: whole, shared by turns or at the same time, or as MIG devices."""
    FRACTIONS = "fractions"
    """In parts of its compute and memory."""
    CLAIMS = "claims"
    """By claims of dynamic resource allocation."""
    NONE = "none"
    """Not at all."""


class DoorHolder(Value, frozen=True):
    """One that has a GPU, or a part of it: its door cannot change before it is gone."""

    door: Door
    """Through which it came."""
    name: str
    """Who it is where no pod is known: `allocation 12`."""
    pod: PodIdentity | None = None
    container: str = ""

    def describe(self) -> str:
        """Pod and container where they are known, else its name."""
        if self.pod is None:
            return self.name
        pod = self.pod.describe()
        return f"{pod} ({self.container})" if self.container else pod


class GpuDoor(Value, frozen=True):
    """The door of one GPU: the one that it has, the one that it shall have, and who stands between the two."""

    gpu: GpuUuid
    index: int
    address: PciAddress
    door: Door
    """By which it is given out, and by which those who have it came."""
    wanted: Door
    reason: str
    """Why this one is wanted: a rule, a person, the default."""
    is_open: bool
    """Whether anybody new may come in."""
    waits_for: tuple[DoorHolder, ...] = ()
    """Who must be gone before all is as wanted."""

    @property
    def is_settled(self) -> bool:
        """Whether all is as wanted."""
        return not self.waits_for

    def describe(self) -> str:
        """The state in one sentence."""
        return f"GPU {self.index}: {self.explain()}"

    def explain(self) -> str:
        """The state without the GPU's name."""
        if self.is_settled:
            return f"door {self.door} ({self.reason})"
        closed = "" if self.is_open else "; nobody new gets it until then"
        return f"door {self.door} until {_join(self.waits_for)} gone, then {self.wanted} ({self.reason}){closed}"


class Offering(Value, frozen=True):
    """State: the door of each GPU."""

    doors: tuple[GpuDoor, ...] = ()
    """In index order."""
    problems: tuple[str, ...] = ()
    """What is wrong with the rules, a sentence each."""
    undecided: str = ""
    """Which GPUs do not answer, and what may mean one of them; empty where nothing is open."""

    def list_closed(self, gpus: Iterable[Gpu], door: Door) -> dict[GpuUuid, str]:
        """Those of these GPUs of which nobody new gets anything through this door, and why."""
        known = {each.gpu: each for each in self.doors}
        standing = {gpu.uuid: known.get(gpu.uuid) for gpu in gpus}
        return {
            uuid: "its door is not known yet" if each is None else each.explain()
            for uuid, each in standing.items()
            if each is None or each.door is not door or not each.is_open
        }

    def list_waiting(self) -> frozenset[GpuUuid]:
        """The GPUs of which somebody must be gone before all is as wanted."""
        return frozenset(each.gpu for each in self.doors if not each.is_settled)

    def list_open(self, door: Door) -> frozenset[GpuUuid]:
        """The GPUs of which somebody new can get something through this door."""
        return frozenset(each.gpu for each in self.doors if each.door is door and each.is_open)

    def list_behind(self, door: Door) -> frozenset[GpuUuid]:
        """The GPUs that this door has, whether anybody new may come in or not."""
        return frozenset(each.gpu for each in self.doors if each.door is door)


def _join(holders: Sequence[DoorHolder]) -> str:
    """`ns/a (c) is`, `ns/a (c) and ns/b (c) are`; those beyond the first few are counted."""
    names = list(dict.fromkeys(holder.describe() for holder in holders))
    shown, more = names[:_NAMED], len(names) - _NAMED
    if more > 0:
        shown.append(f"{more} more")
    last = shown.pop()
    return f"{', '.join(shown)} and {last} are" if shown else f"{last} is"
