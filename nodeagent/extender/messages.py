"""Why a pod does not go to a node, in the words shown by `kubectl describe pod`.

Owns the words. kube-scheduler counts nodes with equal words, so a text names the lack and never a detail of a single
node.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nodeagent.extender.node_space import Summary
from nodeagent.model.wording import render_bytes
from nodeagent.rules.fractions.demands import ContainerDemand, PodDemand
from nodeagent.rules.placement.place import Demand
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
    "cordon": "cordoned",
    "node": "held back by the node's driver, runtime or MPS daemons",
    "elsewhere": "given out by another door",
}
"""By each word of `HeldBack`."""
_HELD_BACK: Final = "held back"


def describe_other_names(demand: PodDemand, theirs: str) -> str:
    """Node and pod name fractions by different resource names."""
    return f"this node gives out parts of GPUs by the names of {theirs}, the pod asks by those of {demand.profile}"


def describe_no_daemons(key: str) -> str:
    """The pod asks for MPS on a node without MPS daemons."""
    return f"nobody looks after MPS daemons on this node, and the pod asks for mps ({key})"


class Lack(NamedTuple):
    """A node's fitting GPUs for a container's demand; nodes with equal numbers get equal words."""

    cores: int
    """GPUs with enough free cores, or wholly free GPUs for a demand of whole GPUs."""
    both: int
    """GPUs with enough free cores and memory; not counted for a demand of one GPU."""


def measure_lack(summary: Summary, demand: Demand) -> Lack:
    """Count the node's fitting GPUs."""
    if demand.cores >= CORES:
        return Lack(summary.whole, summary.whole)
    cores = demand.cores or 1
    enough = 0
    for free, _, _ in summary.rooms:
        enough += free >= cores
    return Lack(enough, summary.count(demand) if demand.gpus > 1 else 0)


def describe_lack(lack: Lack, demand: Demand, *, allowed: bool, where: str = "") -> str:
    """The lack for a container; `where` are the GPUs open to the pod's fractions, of which it may allow only some."""
    which = where + (" that the pod allows" if allowed else "")
    if demand.cores >= CORES:
        return _describe_whole(lack.both, demand.gpus, which)
    room = render_bytes(demand.memory_bytes) if demand.memory_percent is None else f"{demand.memory_percent} %"
    memory = f"{room} of memory"
    if lack.both:
        fraction = f"{demand.cores} cores and {memory}" if demand.cores else memory
        return f"{_count(lack.both)}{which} with {fraction} free, {demand.gpus} are asked for"
    if not lack.cores:
        fraction = f"{demand.cores} cores" if demand.cores else "any cores"
        return f"no GPU{which} with {fraction} free"
    if not demand.cores:
        return f"no GPU{which} with {memory} free"
    return f"{_count(lack.cores)}{which} with {demand.cores} cores free, but none also with {memory}"


def _describe_whole(free: int, wanted: int, which: str) -> str:
    if wanted == 1:
        return f"no GPU{which} that nobody has a part of"
    have = "no GPU" if free == 0 else _count(free)
    return f"{have}{which} that nobody has a part of, {wanted} are asked for"


def _count(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def describe_held(text: str, held: Sequence[str], gpus: int) -> str:
    """The lack, and how many of the node's GPUs are held back and why; the latter alone where all are held back."""
    if not held:
        return text
    counts = Counter(HELD.get(word, _HELD_BACK) for word in held)
    first, *others = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    told = f"{first[1]} of {_count(gpus)} {first[0]}"
    told += "".join(f", {number} {word}" for word, number in others)
    return told if len(held) == gpus else f"{text} ({told})"


def describe_beside(container: ContainerDemand) -> str:
    """A container without room beside the pod's other containers."""
    return f"no room for {container.demand.describe()} (container {container.name}) beside the pod's other containers"
