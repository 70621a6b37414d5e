"""MIG layouts as people read them."""

from collections.abc import Iterator, Mapping, Sequence

from nodeagent.cli.answers.table import Table
from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import IN_LINE, GpuChange, MigState
from nodeagent.rules.mig.partitions import list_profile_names, read_partitions
from nodeagent.rules.mig.show import GpuPlan


def tabulate_gpus(gpus: Sequence[Gpu], state: MigState | None) -> Table:
    """A line per GPU: what it is cut into, and what is being done to it."""
    doing = {change.gpu: change.doing for change in state.changes} if state is not None else {}
    rows = [(str(gpu.index), gpu.name, describe_gpu(gpu), doing.get(gpu.uuid, "-"), gpu.uuid) for gpu in gpus]
    return Table(
        ("GPU", "MODEL", "LAYOUT", "CHANGES", "UUID"),
        rows,
        names=[row[4] for row in rows],
        giving_way=("MODEL",),
        wide=("UUID",),
        nothing="no GPU",
    )


def describe_gpu(gpu: Gpu) -> str:
    """`7 x 1g.10gb`, `MIG off`, `MIG on, not cut`; a mode that waits is told too."""
    if gpu.mig is None:
        return "knows no MIG"
    waits = "" if gpu.mig.pending is gpu.mig.enabled else f", {'on' if gpu.mig.pending else 'off'} after a reset"
    if not gpu.mig.enabled:
        return f"MIG off{waits}"
    counts = list_profile_names(read_partitions(gpu))
    cut = " + ".join(f"{count} x {name}" for name, count in sorted(counts.items(), reverse=True))
    return f"{cut or 'MIG on, not cut'}{waits}"


def describe_state(state: MigState | None) -> list[str]:
    """What is asked for, and how that stands; nothing where nobody cuts GPUs."""
    if state is None or not state.layout:
        return []
    reason = f": {state.detail}" if state.detail else ""
    return [f"asked for: {state.layout} ({state.origin}), {state.standing}{reason}"]


def describe_changes(changes: Sequence[GpuChange]) -> str:
    """What the GPUs that change do now; those that only have their turn to come are counted."""
    doing = [f"GPU {change.index}: {change.doing}" for change in changes if change.doing != IN_LINE]
    left = len(changes) - len(doing)
    return "; ".join([*doing, f"{left} in line"] if left else doing)


def render_plan(plans: Sequence[GpuPlan], problems: Sequence[str], models: Mapping[str, str]) -> Iterator[str]:
    """Like a diff, GPU by GPU; those on which nothing changes are counted."""
    for plan in plans:
        if plan.refusal:
            yield f"GPU {plan.index} ({models[plan.uuid]}): cannot be had: {plan.refusal}"
        elif plan.left:
            yield f"GPU {plan.index} ({models[plan.uuid]}): left as it is: {plan.left}"
        elif plan.changes:
            yield f"GPU {plan.index} ({models[plan.uuid]})"
            yield from (f"  {line}" for line in plan.lines)
    same = sum(not (plan.changes or plan.refusal or plan.left) for plan in plans)
    if same:
        yield f"{same} of {len(plans)} GPUs {'stays as it is' if same == 1 else 'stay as they are'}"
    yield from problems
