"""`nodeagent allocations` and `nodeagent gpu prefer`."""

import argparse
import time
from collections.abc import Mapping

from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.gpu_source import read_gpus, read_judged
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.output import write_answer, write_table
from nodeagent.cli.selection import find_gpu, list_uuids, narrow_rows, warn_of_pod
from nodeagent.cli.settings import load_for_looking
from nodeagent.cli.table import Table, read_environment
from nodeagent.components.allocations.tabulate import tabulate_living
from nodeagent.config.schema import Settings
from nodeagent.model.allocation import Allocation, AllocationRow, AllocationTable
from nodeagent.model.errors import GpuUnknown, RequestInvalid
from nodeagent.model.gpu import Inventory
from nodeagent.model.units import render_age
from nodeagent.rules.placement.explain import explain_preference, render_explanation

HEAD = ("POD", "CONTAINER", "RESOURCE", "DEVICES", "FOR", "STATE")


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Who holds what, or who held it."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    agent = find_agent(settings, environ)
    if arguments.history:
        rows = agent.read("/api/v1/allocations/history", tuple[AllocationRow, ...])
    else:
        living = agent.read("/api/v1/allocations", tuple[Allocation, ...])
        rows = tabulate_living(AllocationTable(allocations=living))
    warn_of_pod(arguments.pod, (_name(row) for row in rows), streams)
    rows = narrow_rows(rows, _find_uuids(arguments.gpu, settings, environ), arguments.pod)
    write_table(arguments, streams, rows, tabulate_rows(rows, now_seconds=time.time()), answerer=agent)
    return ExitCode.OK


def _find_uuids(gpu: str | None, settings: Settings, environ: Mapping[str, str]) -> frozenset[str] | None:
    return list_uuids(find_gpu(read_judged(settings, environ)[1], gpu)) if gpu is not None else None


def tabulate_rows(rows: tuple[AllocationRow, ...], *, now_seconds: float) -> Table:
    """A line per allocation."""
    cells = [_cells(row, now_seconds) for row in rows]
    return Table(HEAD, cells, names=[_name(row) for row in rows if row.pod], nothing="no allocation")


def _name(row: AllocationRow) -> str:
    return f"{row.namespace}/{row.pod}" if row.namespace else row.pod


def _cells(row: AllocationRow, now_seconds: float) -> tuple[str, ...]:
    ended = row.until_seconds if row.until_seconds is not None else now_seconds
    age = render_age(ended - row.since_seconds)
    return (_name(row) or "-", row.container or "-", row.resource, ",".join(row.devices), age, row.state)


def prefer(arguments: argparse.Namespace, streams: Streams) -> int:
    """Which devices a pod would be given, and why."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    if arguments.size < 1:
        raise CommandFailed(f"--size {arguments.size}: give a number of 1 or more", ExitCode.BAD_INPUT)
    agent, records = read_gpus(arguments, settings, environ)
    inventory = Inventory(
        generation=records.generation,
        gpus=tuple(record.gpu for record in records.gpus),
        pairs=records.pairs,
        switches=records.switches,
        missing=records.missing,
    )
    try:
        explanation = explain_preference(
            inventory,
            settings,
            size=arguments.size,
            available=_split(arguments.available),
            must_include=_split(arguments.must_include),
            resource=arguments.resource or "",
        )
    except (GpuUnknown, RequestInvalid) as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    write_answer(arguments, streams, explanation, "\n".join(render_explanation(explanation)) + "\n", agent)
    return ExitCode.OK


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
