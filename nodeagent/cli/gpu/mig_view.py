"""MIG layouts in text."""

from collections.abc import Iterator, Mapping, Sequence

from nodeagent.cli.answers.table import Table
from nodeagent.model.gpu import Gpu
from nodeagent.model.mig import IN_LINE, GpuChange, MigState
from nodeagent.rules.mig.partitions import list_profile_names, read_partitions
from nodeagent.rules.mig.show import GpuPlan


def tabulate_gpus(gpus: Sequence[Gpu], state: MigState | None) -> Table:
    """A line per GPU: its layout, and the present step of a change."""
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
    """`7 x 1g.10gb`, `MIG off`, `MIG on, not cut`; with a pending mode, if any."""
    if gpu.mig is None:
        return "knows no MIG"
    waits = "" if gpu.mig.pending is gpu.mig.enabled else f", {'on' if gpu.mig.pending else 'off'} after a reset"
    if not gpu.mig.enabled:
        return f"MIG off{waits}"
    counts = list_profile_names(read_partitions(gpu))
    cut = " + ".join(f"{count} x {name}" for name, count in sorted(counts.items(), reverse=True))
    return f"{cut or 'MIG on, not cut'}{waits}"


def describe_state(state: MigState | None) -> list[str]:
    """The wanted layout and its state; empty without a wanted layout."""
    if state is None or not state.layout:
        return []
    reason = f": {state.detail}" if state.detail else ""
    return [f"asked for: {state.layout} ({state.origin}), {state.standing}{reason}"]


def describe_changes(changes: Sequence[GpuChange]) -> str:
    """The present steps of changing GPUs; GPUs in line are counted."""
    doing = [f"GPU {change.index}: {change.doing}" for change in changes if change.doing != IN_LINE]
    left = len(changes) - len(doing)
    return "; ".join([*doing, f"{left} in line"] if left else doing)


def render_plan(plans: Sequence[GpuPlan], problems: Sequence[str], models: Mapping[str, str]) -> Iterator[str]:
    """The plan like a diff, GPU by GPU; unchanged GPUs are counted."""
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
