"""How a layout compares with the node's GPUs: right, to be changed, or impossible; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import assert_never

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.values import Value
from nodeagent.rules.mig.layouts import Layout
from nodeagent.rules.mig.partitions import is_met, read_partitions
from nodeagent.rules.mig.steps import Goal, check_goal
from nodeagent.rules.mig.wanted import UNSAID, Wanted, want_of_gpus


class Judgement(Value, frozen=True):
    """The comparison of a layout with the node."""

    wanted: Mapping[GpuUuid, Wanted]
    differing: tuple[GpuUuid, ...] = ()
    """In the order of change."""
    problems: tuple[str, ...] = ()
    """Why the layout is not feasible; nothing is changed then."""
    left: tuple[str, ...] = ()
    """GPUs left alone although they can be cut, and why."""

    def describe_drift(self, layout: str, gpus: Iterable[Gpu]) -> dict[str, str]:
        """The detail of the drift condition: GPUs that differ although the layout was in place before."""
        named = [f"GPU {gpu.index}" for gpu in gpus if gpu.uuid in self.differing]
        return {"": f"{layout}: {', '.join(named)} differs"} if named else {}


def judge(
    layout: Layout, gpus: Sequence[Gpu], offering: Offering | None = None, held: Collection[GpuUuid] = ()
) -> Judgement:
    """Which GPUs differ from the layout, and whether the whole layout is feasible before any change is begun.

    `held`: GPUs on which single MIG devices were made for a key.
    """
    doors = {each.gpu: each.door for each in offering.doors} if offering is not None else {}
    want = want_of_gpus(layout, gpus)
    problems = list(want.problems)
    differing: list[GpuUuid] = []
    left: list[str] = []
    for gpu in sorted(gpus, key=lambda one: one.index):
        wanted = want.gpus.get(gpu.uuid)
        if wanted is None:
            if gpu.mig is not None:
                left.append(f"GPU {gpu.index} is left as it is: {UNSAID}")
            continue
        partitions = read_partitions(gpu)
        if is_met(wanted, partitions):
            continue
        other = find_other(gpu, doors.get(gpu.uuid), held)
        if other and gpu.uuid not in want.named:
            left.append(f"GPU {gpu.index} {other}, and is left as it is")
            continue
        differing.append(gpu.uuid)
        if other:
            problems.append(f"GPU {gpu.index} ({gpu.name}) {other}: {advise(gpu)}")
        elif gpu.lost:
            problems.append(f"GPU {gpu.index} ({gpu.name}) is lost: {gpu.lost}")
        elif refusal := check_goal(Goal(wanted=wanted), partitions):
            problems.append(f"GPU {gpu.index} ({gpu.name}): {refusal}")
    return Judgement(wanted=want.gpus, differing=tuple(differing), problems=tuple(problems), left=tuple(left))


def find_other(gpu: Gpu, door: AllocationMode | None, held: Collection[GpuUuid] = ()) -> str:
    """The other owner of this GPU's partitions, as text; empty if there is no other."""
    if gpu.uuid in held:
        return "has MIG devices that claims have"
    return f"goes through the door {door}" if door is not None and _is_shared(door) else ""


def list_others(offering: Offering | None, held: Collection[GpuUuid]) -> frozenset[GpuUuid]:
    """The GPUs with another owner by now."""
    doors = offering.doors if offering is not None else ()
    return frozenset({*held, *(each.gpu for each in doors if _is_shared(each.door))})


def _is_shared(door: AllocationMode) -> bool:
    """Whether the MIG component could not keep new users out while a GPU of the allocation mode changes."""
    match door:
        case AllocationMode.FRACTIONS | AllocationMode.CLAIMS:
            return True
        case AllocationMode.WHOLE | AllocationMode.NONE:
            return False
    assert_never(door)


def advise(gpu: Gpu) -> str:
    """Steps before a GPU of another owner can be cut."""
    return f"choose whole or none for it first, with `doors.rules` or `nodeagent gpu set-door {gpu.index} none`"
