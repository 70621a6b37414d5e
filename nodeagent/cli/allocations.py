"""`nodeagent allocations` and `nodeagent gpu prefer`."""

import argparse
import time

from msgspec import json

from nodeagent.cli.answer import render_json, say_simulated
from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.gpu_source import read_gpus
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment, read_width, render_table
from nodeagent.components.allocations.tabulate import tabulate_living
from nodeagent.components.deviceplugin.explain import explain_preference, render_explanation
from nodeagent.model.allocation import Allocation, AllocationRow, AllocationTable
from nodeagent.model.errors import GpuUnknown, RequestInvalid
from nodeagent.model.gpu import Inventory
from nodeagent.model.units import render_age

HEAD = ("POD", "CONTAINER", "RESOURCE", "DEVICES", "FOR", "STATE")


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Who holds what, or who held it."""
    environ = read_environment(arguments)
    agent = find_agent(load_for(arguments, environ).settings, environ)
    if arguments.history:
        rows = json.decode(agent.get("/api/v1/allocations/history"), type=tuple[AllocationRow, ...])
    else:
        living = json.decode(agent.get("/api/v1/allocations"), type=tuple[Allocation, ...])
        rows = tabulate_living(AllocationTable(allocations=living))
    if arguments.json:
        streams.out.write(render_json(rows, agent))
    else:
        lines = render_rows(rows, now_seconds=time.time(), width=read_width(streams.out))
        print(say_simulated(agent) + "\n".join(lines), file=streams.out)
    return ExitCode.OK


def render_rows(rows: tuple[AllocationRow, ...], *, now_seconds: float, width: int) -> list[str]:
    """The table; one line when there is nothing to show."""
    if not rows:
        return ["no allocation"]
    return render_table(HEAD, [_cells(row, now_seconds) for row in rows], width=width)


def _cells(row: AllocationRow, now_seconds: float) -> tuple[str, ...]:
    pod = f"{row.namespace}/{row.pod}" if row.namespace else row.pod or "-"
    ended = row.until_seconds if row.until_seconds is not None else now_seconds
    age = render_age(ended - row.since_seconds)
    return (pod, row.container or "-", row.resource, ",".join(row.devices), age, row.state)


def prefer(arguments: argparse.Namespace, streams: Streams) -> int:
    """Which devices a pod would be given, and why."""
    environ = read_environment(arguments)
    settings = load_for(arguments, environ).settings
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
    if arguments.json:
        streams.out.write(render_json(explanation, agent))
    else:
        heading = say_simulated(agent)
        print(heading + "\n".join(render_explanation(explanation)), file=streams.out)
    return ExitCode.OK


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
