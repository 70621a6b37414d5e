"""A plan for people to read: like a diff, one line for each thing that goes, stays or comes.

Owns the lines. Refuses colours and columns: the printer's business.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import GpuPartitions
from nodeagent.model.values import Value
from nodeagent.rules.mig.partitions import LayoutInfeasible, assume_places
from nodeagent.rules.mig.solve import solve
from nodeagent.rules.mig.steps import Goal
from nodeagent.rules.mig.wanted import Wanted


class GpuPlan(Value, frozen=True):
    """The effect of a layout on one GPU."""

    index: int
    uuid: str
    name: str
    lines: tuple[str, ...] = ()
    """`- 3g.40gb at slot 4`, `  1g.10gb at slot 0`, `+ 2g.20gb at slot 4`; empty where nothing changes."""
    refusal: str = ""
    """Why the layout is impossible."""
    left: str = ""
    """Why the GPU is not touched."""

    @property
    def changes(self) -> bool:
        """Whether anything would be written."""
        return any(line[0] in "+-" for line in self.lines)


def plan_gpu(gpu: Gpu, wanted: Wanted, partitions: GpuPartitions) -> GpuPlan:
    """The plan for one GPU."""
    goal = Goal(wanted=wanted)
    plan = GpuPlan(index=gpu.index, uuid=gpu.uuid, name=gpu.name)
    if goal.is_reached(partitions):
        return plan
    try:
        lines = tuple(_render(goal, assume_places(partitions)))
    except LayoutInfeasible as refused:
        return replace(plan, refusal=str(refused))
    return replace(plan, lines=lines)


def _render(goal: Goal, partitions: GpuPartitions) -> Iterator[str]:
    if goal.enabled is not partitions.enabled:
        yield f"- MIG {_switch(on=partitions.enabled)}"
        yield f"+ MIG {_switch(on=goal.enabled)}"
    names = {one.profile_id: one.name for one in partitions.profiles}
    if not goal.enabled:
        for gone in partitions.instances:
            yield f"- {names.get(gone.profile_id, f'profile {gone.profile_id}')}{_at(gone.start)}"
        return
    if not partitions.profiles:
        yield "+ what is wished, once the driver tells its profiles"
        return
    solution = solve(goal.targets(partitions), partitions)
    for gone in solution.destroyed:
        yield f"- {names.get(gone.profile_id, f'profile {gone.profile_id}')}{_at(gone.start)}"
    for kept in solution.kept:
        yield f"  {names[kept.instance.profile_id]}{_at(kept.instance.start)}"
        for compute in kept.destroyed:
            yield f"-   {compute.slices}c in it"
        for slices in kept.created:
            yield f"+   {slices}c in it"
    for placed in solution.created:
        profile = placed.target.profile
        within = "" if placed.target.computes == (profile.slice_count,) else f" with {_list(placed.target.computes)}"
        yield f"+ {profile.name}{_at(placed.start)}{within}"


def _switch(*, on: bool) -> str:
    return "on" if on else "off"


def _at(start: int | None) -> str:
    return "" if start is None else f" at slot {start}"


def _list(computes: Iterable[int]) -> str:
    return ", ".join(f"{slices}c" for slices in computes)
