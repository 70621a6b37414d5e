"""The wanted state of each GPU of this node, by a layout.

Owns the choice of the entry that counts for a GPU, and the limits of a GPU without MIG support.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import field

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value
from nodeagent.rules.mig.layouts import Layout, LayoutRule

UNSAID: Final = "the layout says nothing of it"
NO_MIG: Final = "it knows no MIG"


class Wanted(Value, frozen=True):
    """The wanted state of one GPU: whole, or cut into so many MIG devices of each profile."""

    enabled: bool
    profiles: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """As people read it: `MIG off`, `MIG on, not cut`, `7 x 1g.10gb`."""
        if not self.enabled:
            return "MIG off"
        counts = [f"{count} x {name}" for name, count in self.profiles.items()]
        return " + ".join(counts) or "MIG on, not cut"


class WantedOfNode(Value, frozen=True):
    """The wanted state of the GPUs that a layout covers, and the layout's impossibilities."""

    gpus: Mapping[GpuUuid, Wanted]
    named: frozenset[GpuUuid] = frozenset()
    """GPUs named by themselves, and not among all."""
    uncovered: tuple[GpuUuid, ...] = ()
    """GPUs without an entry: they stay as they are."""
    problems: tuple[str, ...] = ()


def want_of_gpus(layout: Layout, gpus: Iterable[Gpu]) -> WantedOfNode:
    """The wanted state of each GPU: of several entries for a GPU the last counts.

    A GPU without MIG support is passed over by an entry for all, and refused where an entry names it.
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    wanted: dict[GpuUuid, Wanted] = {}
    named: set[GpuUuid] = set()
    uncovered: list[GpuUuid] = []
    problems: list[str] = []
    for gpu in ordered:
        parts = [part for part in layout if part.covers(gpu)]
        if not parts:
            uncovered.append(gpu.uuid)
            continue
        part = parts[-1]
        if gpu.mig is not None:
            named |= {gpu.uuid} if _is_named(part) else set()
            wanted[gpu.uuid] = Wanted(enabled=part.enabled, profiles=part.profiles)
        elif part.enabled and _is_named(part):
            problems.append(f"GPU {gpu.index} ({gpu.name}) knows no MIG: leave it out of the layout")
    problems += _list_absent(layout, ordered)
    if not wanted and not problems and any(gpu.mig is not None for gpu in ordered if gpu.uuid in uncovered):
        problems.append(f"the layout is for other boards than this node's: {_count_models(ordered)}")
    return WantedOfNode(gpus=wanted, named=frozenset(named), uncovered=tuple(uncovered), problems=tuple(problems))


def _count_models(gpus: Iterable[Gpu]) -> str:
    counts = Counter(gpu.name for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _is_named(part: LayoutRule) -> bool:
    return part.indexes is not None or bool(part.selectors)


def _list_absent(layout: Layout, gpus: Sequence[Gpu]) -> list[str]:
    """Indexes beyond the node's GPUs, unless they stand behind a filter for other nodes."""
    last = max((gpu.index for gpu in gpus), default=-1)
    absent = sorted({index for part in layout if not part.filters for index in part.indexes or () if index > last})
    return [f"there is no GPU {index} on this node, the last one is {last}" for index in absent]
