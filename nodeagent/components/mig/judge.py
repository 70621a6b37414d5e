"""How a layout compares with the GPUs of this node: what is right, what must change, what cannot be; pure."""

from collections.abc import Mapping, Sequence

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value
from nodeagent.rules.mig.layouts import Layout
from nodeagent.rules.mig.partitions import is_met, read_partitions
from nodeagent.rules.mig.steps import Goal, check_goal
from nodeagent.rules.mig.wanted import Wanted, want_of_gpus


class Judgement(Value, frozen=True):
    """One layout on this node."""

    wanted: Mapping[GpuUuid, Wanted]
    differing: tuple[GpuUuid, ...] = ()
    """In the order in which they are to change."""
    problems: tuple[str, ...] = ()
    """Why it cannot be had: nothing is changed then."""


def judge(layout: Layout, gpus: Sequence[Gpu]) -> Judgement:
    """Which GPUs differ from the layout, and whether all of it can be had before any of it is begun."""
    want = want_of_gpus(layout, gpus)
    problems = list(want.problems)
    differing: list[GpuUuid] = []
    for gpu in sorted(gpus, key=lambda one: one.index):
        wanted = want.gpus.get(gpu.uuid)
        if wanted is None:
            continue
        partitions = read_partitions(gpu)
        if is_met(wanted, partitions):
            continue
        differing.append(gpu.uuid)
        if gpu.lost:
            problems.append(f"GPU {gpu.index} ({gpu.name}) is lost: {gpu.lost}")
        elif refusal := check_goal(Goal(wanted=wanted), partitions):
            problems.append(f"GPU {gpu.index} ({gpu.name}): {refusal}")
    return Judgement(wanted=want.gpus, differing=tuple(differing), problems=tuple(problems))
