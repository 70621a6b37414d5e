"""Why a pod does not go to a node, in the words that `kubectl describe pod` shows.

Owns the words. Of a thousand nodes kube-scheduler counts those with the same words, so what is said here names what is
missing and never what only one node has.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nodeagent.extender.account import Summary
from nodeagent.model.units import render_bytes
from nodeagent.rules.fractions.demands import ContainerDemand, PodDemand
from nodeagent.rules.placement.evaluators import Demand
from nodeagent.rules.placement.space import CORES

UNKNOWN = "this node is not known to the extender yet"
NOTHING = "this node gives out no parts of GPUs"
ELSEWHERE = "a better node was chosen"
TOGETHER = "too little is free for all of the pod's containers together"
NOT_ASKED = "enough better nodes have room"
HELD: Final[Mapping[str, str]] = {
    "unhealthy": "unhealthy",
    "mig": "held back for a MIG layout",
    "door": "behind a closed door",
    "node": "held back by the node's driver, runtime or MPS daemons",
    "elsewhere": "given out by another door",
}
"""By each word of `HeldBack`."""
_HELD_BACK: Final = "held back"


def tell_other_names(demand: PodDemand, theirs: str) -> str:
    """Node and pod speak of parts by different names."""
    return f"this node gives out parts of GPUs by the names of {theirs}, the pod asks by those of {demand.profile}"


def tell_no_daemons(key: str) -> str:
    """The pod asks for MPS where there is none."""
    return f"nobody looks after MPS daemons on this node, and the pod asks for mps ({key})"


class Lack(NamedTuple):
    """What a node has of what a container asks for; nodes that have the same get the same words."""

    cores: int
    """GPUs with enough free cores, or that nobody has a part of where whole ones are asked for."""
    both: int
    """Those of them that have enough memory too."""


def measure_lack(summary: Summary, demand: Demand) -> Lack:
    """Count what a node has."""
    if demand.cores >= CORES:
        return Lack(summary.whole, summary.whole)
    cores = demand.cores or 1
    enough = 0
    for free, _, _ in summary.rooms:
        enough += free >= cores
    return Lack(enough, summary.count(demand) if demand.gpus > 1 else 0)


def tell_lack(lack: Lack, demand: Demand, *, allowed: bool, where: str = "") -> str:
    """What is missing for a container.

    Args:
        lack: what the node has.
        demand: what is asked for.
        allowed: whether the pod lets only some GPUs be had.
        where: of which GPUs alone it can have parts, in words.
    """
    which = where + (" that the pod allows" if allowed else "")
    if demand.cores >= CORES:
        return _tell_whole(lack.both, demand.gpus, which)
    room = render_bytes(demand.memory_bytes) if demand.memory_percent is None else f"{demand.memory_percent} %"
    memory = f"{room} of memory"
    if lack.both:
        part = f"{demand.cores} cores and {memory}" if demand.cores else memory
        return f"{_count(lack.both)}{which} with {part} free, {demand.gpus} are asked for"
    if not lack.cores:
        part = f"{demand.cores} cores" if demand.cores else "any cores"
        return f"no GPU{which} with {part} free"
    if not demand.cores:
        return f"no GPU{which} with {memory} free"
    return f"{_count(lack.cores)}{which} with {demand.cores} cores free, but none also with {memory}"


def _tell_whole(free: int, wanted: int, which: str) -> str:
    if wanted == 1:
        return f"no GPU{which} that nobody has a part of"
    have = "no GPU" if free == 0 else _count(free)
    return f"{have}{which} that nobody has a part of, {wanted} are asked for"


def _count(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def tell_held(text: str, held: Sequence[str], gpus: int) -> str:
    """What is missing and how many of so many GPUs are held back, and why; that alone where all of them are.

    Args:
        text: what is missing.
        held: the word for each GPU that is held back.
        gpus: how many the node has.
    """
    if not held:
        return text
    counts = Counter(HELD.get(word, _HELD_BACK) for word in held)
    first, *others = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    told = f"{first[1]} of {_count(gpus)} {first[0]}"
    told += "".join(f", {number} {word}" for word, number in others)
    return told if len(held) == gpus else f"{text} ({told})"


def tell_beside(container: ContainerDemand) -> str:
    """A container for which the pod's others leave no room."""
    return f"no room for {container.demand.describe()} (container {container.name}) beside the pod's other containers"
