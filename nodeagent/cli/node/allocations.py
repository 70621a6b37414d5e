"""`nodeagent allocations` and `nodeagent gpu prefer`."""

import argparse
import time
from collections.abc import Mapping
from typing import TypeVar

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.asking import ask, name_devices
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.selection import find_gpu, list_uuids, narrow_rows, warn_of_pod
from nodeagent.cli.answers.table import Table, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.source import read_free, read_gpus
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.allocations.tabulate import tabulate_living
from nodeagent.components.web.api.fractions import ContainerFractionsRecord, FractionsRecord
from nodeagent.components.web.api.records import GpusRecord
from nodeagent.model.allocation import Allocation, AllocationRow, AllocationTable
from nodeagent.model.errors import GpuUnknown, RequestInvalid
from nodeagent.model.gpu import Inventory
from nodeagent.model.wording import render_age
from nodeagent.rules.ids import DEVICE_PREFIX, parse_device_id
from nodeagent.rules.placement.explain import explain_preference, render_explanation
from nodeagent.rules.receipts import Receipt, describe_fault

HEAD = ("POD", "CONTAINER", "RESOURCE", "FOR", "STATE", "GPUS", "DEVICES")
GIVING_WAY = ("DEVICES", "RESOURCE", "CONTAINER")
"""Columns left out on a narrow terminal, the first first; pod, duration and GPU always stay."""
HEAD_OF_RECEIPTS = ("POD", "CONTAINER", "RESOURCE", "FOR", "ENDED", "GPUS", "BLAMED", "FAULTS", "STATE", "DEVICES")
RECEIPTS_GIVING_WAY = ("DEVICES", "RESOURCE", "CONTAINER", "STATE", "FOR")
R = TypeVar("R", bound=AllocationRow)


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """The present allocations, or the receipts of the past with `--history`."""
    if arguments.history:
        agent, receipts = ask(arguments, "receipts", tuple[Receipt, ...])
        left, names = _narrow(arguments, receipts, streams)
        table = tabulate_receipts(left, names, now_seconds=time.time())
        write_table(arguments, streams, left, table, answerer=agent)
        return ExitCode.OK
    agent, living = ask(arguments, "allocations", tuple[Allocation, ...])
    _, parts = ask(arguments, "parts", FractionsRecord)
    held = (*tabulate_living(AllocationTable(allocations=living)), *map(describe_fraction, parts.bound))
    rows, names = _narrow(arguments, held, streams)
    write_table(arguments, streams, rows, tabulate_rows(rows, names, now_seconds=time.time()), answerer=agent)
    return ExitCode.OK


def _narrow(
    arguments: argparse.Namespace, rows: tuple[R, ...], streams: Streams
) -> tuple[tuple[R, ...], Mapping[str, str]]:
    """The rows of the wanted GPU and pod, and the numbers of the devices, by UUID."""
    warn_of_pod(arguments.pod, (_name(row) for row in rows), streams)
    _, gpus = ask(arguments, "gpus", GpusRecord)
    own = list_uuids(find_gpu(gpus, arguments.gpu)) if arguments.gpu is not None else None
    return narrow_rows(rows, own, arguments.pod), name_devices(record.gpu for record in gpus.gpus)


def describe_fraction(record: ContainerFractionsRecord) -> AllocationRow:
    """A container with fractions, in the form of an allocation of whole devices."""
    binding = record.binding
    return AllocationRow(
        number=binding.number,
        resource=", ".join(record.resources),
        devices=tuple(part.gpu for part in binding.parts),
        namespace=binding.pod.namespace,
        pod=binding.pod.name or binding.pod.uid,
        container=binding.container,
        since_seconds=binding.since_seconds,
        until_seconds=None,
        state="held in parts",
        source="journal",
    )


def tabulate_rows(rows: tuple[AllocationRow, ...], names: Mapping[str, str], *, now_seconds: float) -> Table:
    """A line per allocation."""
    cells = [_cells(row, names, now_seconds) for row in rows]
    pods = [_name(row) for row in rows if row.pod]
    return Table(HEAD, cells, names=pods, giving_way=GIVING_WAY, nothing="no allocation")


def tabulate_receipts(receipts: tuple[Receipt, ...], names: Mapping[str, str], *, now_seconds: float) -> Table:
    """A line per receipt."""
    cells = []
    for receipt in receipts:
        pod, container, resource, age, state, gpus, devices = _cells(receipt, names, now_seconds)
        ended = render_age(now_seconds - (receipt.until_seconds or now_seconds))
        faults = ", ".join(describe_fault(fault, receipt.until_seconds) for fault in receipt.faults) or "-"
        cells.append((pod, container, resource, age, f"{ended} ago", gpus, receipt.verdict, faults, state, devices))
    pods = [_name(receipt) for receipt in receipts if receipt.pod]
    return Table(HEAD_OF_RECEIPTS, cells, names=pods, giving_way=RECEIPTS_GIVING_WAY, nothing="no receipt")


def _name(row: AllocationRow) -> str:
    return f"{row.namespace}/{row.pod}" if row.namespace else row.pod


def _cells(row: AllocationRow, names: Mapping[str, str], now_seconds: float) -> tuple[str, ...]:
    ended = row.until_seconds if row.until_seconds is not None else now_seconds
    age = render_age(ended - row.since_seconds)
    # A device gone from the node has no number any more.
    of_gpus = [device for device in row.devices if not device.startswith(DEVICE_PREFIX)]
    gpus = ",".join(dict.fromkeys(names.get(parse_device_id(device)[0], "gone") for device in of_gpus)) or "-"
    return (_name(row) or "-", row.container or "-", row.resource, age, row.state, gpus, ",".join(row.devices))


def prefer(arguments: argparse.Namespace, streams: Streams) -> int:
    """The preferred devices for a pod, and why."""
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
            free=read_free(arguments, settings, environ),
        )
    except (GpuUnknown, RequestInvalid) as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    write_answer(arguments, streams, explanation, "\n".join(render_explanation(explanation)) + "\n", agent)
    return ExitCode.OK


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
