"""The allocation mode of each GPU: whole, in fractions, by claims, or none."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cordons import Cordon
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.values import Value

_NAMED: Final = 4
"""Holders named singly in a sentence."""


class AllocationMode(StrEnum):
    """Allocation modes; a GPU has exactly one at each moment."""

    WHOLE = "whole"
    """By the device plugin: whole, shared by time slicing or MPS, or as MIG devices."""
    FRACTIONS = "fractions"
    """In fractions of the GPU's compute and memory."""
    CLAIMS = "claims"
    """By claims of dynamic resource allocation."""
    NONE = "none"
    """Not at all."""


ModeWord: TypeAlias = Literal["whole", "fractions", "claims", "none"]
"""The modes as the configuration's rules name them, and, beside another word, the order of a person."""


class ModeHolder(Value, frozen=True):
    """A holder of a GPU, or of a fraction or MIG device: the GPU's mode cannot change before the holder is gone."""

    door: AllocationMode
    """The allocation mode by which the holder got the device."""
    name: str
    """The holder where no pod is known: `allocation 12`."""
    pod: PodIdentity | None = None
    container: str = ""

    def describe(self) -> str:
        """Pod and container where known, else the holder's name."""
        return self.name if self.pod is None else self.pod.describe(self.container)


class GpuAllocationMode(Value, frozen=True):
    """A GPU's allocation mode: the present, the wanted, and the holders in between."""

    gpu: GpuUuid
    index: int
    address: PciAddress
    door: AllocationMode
    """The present mode of allocation, by which the holders came too."""
    wanted: AllocationMode
    reason: str
    """Why the wanted mode is wanted: a rule, a person, the default."""
    is_open: bool
    """Whether new pods may get the GPU."""
    waits_for: tuple[ModeHolder, ...] = ()
    """Holders to be gone before the mode is as wanted."""
    cordons: tuple[Cordon, ...] = ()
    """The cordons in force, each of which keeps new pods away."""
    held_by: tuple[ModeHolder, ...] = ()
    """The holders of a cordoned GPU, who keep the GPU; empty without a cordon."""
    trial: Cordon | None = None
    """The brake's cordon whose pause is over: a single device of the GPU may be taken, to prove the GPU."""

    @property
    def is_settled(self) -> bool:
        """Whether all is as wanted."""
        return not self.waits_for

    @property
    def brake_closings(self) -> int:
        """How many times in a row the brake has closed the GPU, the present closing or trial included."""
        return max((one.closings for one in (*self.cordons, self.trial) if one is not None), default=0)

    def sum_up_cordons(self) -> str:
        """Who keeps new pods from the GPU, and until when; empty without a cordon or trial."""
        if self.cordons:
            return f"cordoned {' and '.join(each.sum_up() for each in self.cordons)}"
        return "open to a single pod, after the brake" if self.trial is not None else ""

    def describe(self) -> str:
        """The state in a sentence."""
        return f"GPU {self.index}: {self.explain()}"

    def explain(self) -> str:
        """The state without the GPU's name."""
        if not self.cordons:
            return self._explain_mode()
        by = " and ".join(each.describe() for each in self.cordons)
        waits = f", which waits for {_list_names(self.held_by)}" if self.held_by else ""
        return f"cordoned {by}{waits}" if self.is_settled else f"cordoned {by}; {self._explain_mode()}"

    def _explain_mode(self) -> str:
        if self.trial is not None:
            return f"door {self.door}, for one pod, after the brake: {self.trial.reason}"
        if self.is_settled:
            return f"door {self.door} ({self.reason})"
        closed = "" if self.is_open else "; nobody new gets it until then"
        return f"door {self.door} until {_join(self.waits_for)} gone, then {self.wanted} ({self.reason}){closed}"


class Offering(Value, frozen=True):
    """State: the allocation mode of each GPU."""

    doors: tuple[GpuAllocationMode, ...] = ()
    """In index order."""
    problems: tuple[str, ...] = ()
    """Mistakes in the rules, a sentence each."""
    undecided: str = ""
    """The GPUs that do not answer, and the rules that may mean such a GPU; empty where all is decided."""

    def list_closed(self, gpus: Iterable[Gpu], door: AllocationMode) -> dict[GpuUuid, str]:
        """Of these GPUs the ones with nothing for new pods in this allocation mode, and why."""
        known = {each.gpu: each for each in self.doors}
        standing = {gpu.uuid: known.get(gpu.uuid) for gpu in gpus}
        return {
            uuid: "its door is not known yet" if each is None else each.explain()
            for uuid, each in standing.items()
            if each is None or each.door is not door or not each.is_open
        }

    def list_elsewhere(self, gpus: Iterable[Gpu], door: AllocationMode) -> dict[GpuUuid, str]:
        """Of these GPUs the ones closed in this allocation mode by more than a cordon, and why."""
        standing = {each.gpu for each in self.doors if each.door is door and each.cordons and each.is_settled}
        return {uuid: reason for uuid, reason in self.list_closed(gpus, door).items() if uuid not in standing}

    def list_cordoned(self) -> dict[GpuUuid, str]:
        """The cordoned GPUs of every allocation mode, and by whom."""
        return {each.gpu: each.explain() for each in self.doors if each.cordons}

    def list_trials(self) -> dict[GpuUuid, float]:
        """The GPUs of which a single device may be taken, to prove the GPU, and since when."""
        return {each.gpu: each.trial.until_seconds or 0.0 for each in self.doors if each.trial is not None}

    def list_waiting(self) -> frozenset[GpuUuid]:
        """The GPUs with holders to be gone before the mode is as wanted."""
        return frozenset(each.gpu for each in self.doors if not each.is_settled)

    def list_open(self, door: AllocationMode) -> frozenset[GpuUuid]:
        """The GPUs with something for new pods in this allocation mode."""
        return frozenset(each.gpu for each in self.doors if each.door is door and each.is_open)

    def list_behind(self, door: AllocationMode) -> frozenset[GpuUuid]:
        """The GPUs of this allocation mode, whether new pods may get them or not."""
        return frozenset(each.gpu for each in self.doors if each.door is door)


def _join(holders: Sequence[ModeHolder]) -> str:
    """`ns/a (c) is`, `ns/a (c) and ns/b (c) are`."""
    names = _list_names(holders)
    return f"{names} {'are' if len(dict.fromkeys(holder.describe() for holder in holders)) > 1 else 'is'}"


def _list_names(holders: Sequence[ModeHolder]) -> str:
    """`ns/a (c)`, `ns/a (c) and ns/b (c)`; holders beyond the first few are counted."""
    names = list(dict.fromkeys(holder.describe() for holder in holders))
    shown, more = names[:_NAMED], len(names) - _NAMED
    if more > 0:
        shown.append(f"{more} more")
    last = shown.pop()
    return f"{', '.join(shown)} and {last}" if shown else last
