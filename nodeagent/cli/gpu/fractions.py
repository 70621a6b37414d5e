"""`nodeagent fractions list|explain`."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

from nodeagent.cli.answers.asking import ask, ask_class_devices, ask_device_names
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import Table
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.web.api.fractions import ContainerFractionsRecord, FractionsRecord, WaitingRecord
from nodeagent.model.journal import Binding
from nodeagent.model.wording import render_age, render_bytes, suggest
from nodeagent.rules.ids import is_of_class

HEAD = ("POD", "CONTAINER", "GPU", "CORES", "MEMORY", "HELD BY", "FOR", "WHY")
WAITS = "waits"


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The fractions with their holders, and the waiting containers."""
    agent, parts = ask(arguments, "parts", FractionsRecord)
    names = ask_device_names(arguments)
    if any(is_of_class(fraction.gpu) for record in parts.bound for fraction in record.used):
        names |= ask_class_devices(arguments)
    table = tabulate(parts, names, now_seconds=time.time())
    write_table(arguments, streams, parts, table, _list_undivided(parts), agent)
    return ExitCode.OK


def tabulate(parts: FractionsRecord, names: Mapping[str, str], *, now_seconds: float) -> Table:
    """A line for each GPU of each container, then a line for each waiting container."""
    rows = [
        (
            _name(record.binding),
            record.binding.container,
            names.get(used.gpu, "gone"),
            used.describe_cores(),
            used.describe_memory(),
            str(record.binding.enforcement),
            render_age(now_seconds - record.binding.since_seconds),
            record.binding.why or "-",
        )
        for record in parts.bound
        for used in record.used
    ]
    for waiting in parts.waiting:
        pod, _, container = waiting.container.partition(" ")
        rows.append((pod, container.strip("()"), WAITS, "-", "-", "-", "-", _reason(waiting)))
    return Table(
        HEAD,
        rows,
        giving_way=("WHY", "CONTAINER"),
        wide=("HELD BY",),
        nothing="no container has a part of a GPU; `nodeagent gpu doors` says which GPUs are given in parts",
    )


def _show(count: int | None, render: Callable[[int], str] = str) -> str:
    return "-" if count is None else render(count)


def _list_undivided(parts: FractionsRecord) -> list[str]:
    """Use that belongs to one of several containers, a line each."""
    return [
        f"of GPU {_show(one.index)}, {_show(one.cores_used)} cores and {_show(one.memory_used_bytes, render_bytes)} are"
        f" used in {one.pod.namespace}/{one.pod.name}: by {' or '.join(one.containers)}, the container runtime has not"
        " told which"
        for one in parts.undivided
    ]


def explain(arguments: argparse.Namespace, streams: Streams) -> int:
    """How the GPUs of a pod were chosen, or why the pod waits."""
    agent, parts = ask(arguments, "parts", FractionsRecord)
    bound = tuple(record for record in parts.bound if arguments.pod in _names(_name(record.binding)))
    waiting = tuple(one for one in parts.waiting if arguments.pod in _names(one.container.partition(" ")[0]))
    if not bound and not waiting:
        known = [*map(_name, (record.binding for record in parts.bound)), *(one.container for one in parts.waiting)]
        hint = suggest(arguments.pod, known) or "; `nodeagent fractions list` shows who does"
        problem = f"no pod {arguments.pod} has a part of a GPU or waits for one{hint}"
        raise CommandFailed(problem, ExitCode.BAD_INPUT)
    lines = [line for record in bound for line in _explain_bound(record)]
    lines += [line for one in waiting for line in (f"{one.container} waits", *(f"  {each}" for each in one.looked_at))]
    write_answer(
        arguments, streams, FractionsRecord(bound=bound, waiting=waiting), "".join(f"{line}\n" for line in lines), agent
    )
    return ExitCode.OK


def _name(binding: Binding) -> str:
    return binding.pod.describe()


def _names(pod: str) -> Sequence[str]:
    """The pod's name with its namespace, and without."""
    return pod, pod.partition("/")[2]


def _reason(waiting: WaitingRecord) -> str:
    because = next((line for line in waiting.looked_at if line.startswith("because")), "")
    return because.removeprefix("because").strip() or "-"


def _explain_bound(record: ContainerFractionsRecord) -> tuple[str, ...]:
    binding = record.binding
    decided = record.decided or (
        f"because    {binding.why or 'it was found so'}",
        "note       what else was looked at is not remembered over a restart of the agent",
    )
    return (f"{_name(binding)} ({binding.container})", *(f"  {line}" for line in decided))
