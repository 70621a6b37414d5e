"""`nodeagent metrics list` and `nodeagent render metrics`."""

import argparse
import platform

import anyio
from msgspec.structs import replace

from nodeagent.app.hardware import Hardware, choose_hardware
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Table, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.exporter.catalogue.listing import list_fields, render_csv
from nodeagent.components.exporter.catalogue.selection import Selection, parse_selection, select_defaults
from nodeagent.components.exporter.exposition import OPENMETRICS_END, join_openmetrics, join_text
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DriverError
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import NodeSample

FIELDS_FILE_BYTES_MAX = 1024 * 1024
BETWEEN_SAMPLES_SECONDS = 0.5
"""Rates and hardware counters need two samples more than a tenth of a second apart."""
READ_SECONDS = 30.0
HEAD = ("FIELD", "TYPE", "STANDING", "WHAT IT IS, OR WHY IT IS MISSING")


def list_metrics(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every field, and whether the field is shown."""
    if arguments.csv:
        streams.out.write(render_csv())
        return ExitCode.OK
    settings = load_for(arguments, read_environment()).settings
    selection = _read_selection(settings)
    entries = list_fields(selection, zero_before_first=settings.metrics.xid_zero_before_first)
    rows = [(entry.name, entry.type, entry.standing, entry.text) for entry in entries]
    write_table(arguments, streams, {"fields": entries, "problems": selection.problems}, Table(HEAD, rows))
    for problem in selection.problems:
        print(f"nodeagent: metrics.fields_file: {problem}", file=streams.err)
    return ExitCode.BAD_INPUT if arguments.strict and selection.problems else ExitCode.OK


def render(arguments: argparse.Namespace, streams: Streams) -> int:
    """The agent's GPU series, from two samples taken now."""
    environ = read_environment()
    settings = load_for(arguments, environ).settings
    selection = _read_selection(settings)
    # Standard output is the exposition: log lines go to standard error.
    configure_logging(level="warning")
    hardware = choose_hardware(LiveSettings(settings), settings.node.name or platform.node(), 1)
    inventory, samples = anyio.run(_read_hardware, hardware)
    # Only a running agent knows the holders of devices.
    metrics = replace(settings.metrics, pod_attribution=False)
    requests = SeriesSelection(selection, metrics, settings.node.name or platform.node())
    series, known = NodeSeries(), Knowledge(inventory, DriverState(phase=DriverPhase.READY))
    blocks = []
    for sample in samples:
        blocks = list(series.render(sample, known, requests))
    body = join_openmetrics(blocks) + OPENMETRICS_END if arguments.openmetrics else join_text(blocks)
    streams.out.write(body.decode())
    return ExitCode.OK


async def _read_hardware(hardware: Hardware) -> tuple[Inventory, list[NodeSample]]:
    samples: list[NodeSample] = []
    try:
        with anyio.fail_after(READ_SECONDS):
            async with anyio.create_task_group() as tasks:
                await tasks.start(hardware.run, name="GPU source")
                readout = await hardware.gpus.read_inventory()
                for pause in (BETWEEN_SAMPLES_SECONDS, 0.0):
                    samples.append(await hardware.gpus.read_sample())
                    await anyio.sleep(pause)
                tasks.cancel_scope.cancel()
    except* (DriverError, TimeoutError) as errors:
        reason = str(errors.exceptions[0]) or f"no answer within {READ_SECONDS:.0f} s"
        raise CommandFailed(f"cannot read the GPUs: {reason}", ExitCode.NO_DRIVER) from None
    return Inventory(generation=1, gpus=readout.gpus, pairs=readout.pairs, missing=readout.missing), samples


def _read_selection(settings: Settings) -> Selection:
    path = settings.metrics.fields_file
    if path is None:
        return select_defaults()
    try:
        content = read_bounded(path, limit_bytes=FIELDS_FILE_BYTES_MAX)
    except HostError as error:
        raise CommandFailed(f"metrics.fields_file: {error}", ExitCode.BAD_INPUT) from error
    return parse_selection(content.decode("utf-8", "replace"))
