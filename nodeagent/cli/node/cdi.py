"""`nodeagent cdi generate|list|validate`."""

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path

import anyio

from nodeagent.app.hardware import choose_hardware
from nodeagent.app.host_root import choose_driver_files
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import Table, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.cdi.decide import (
    Layout,
    decide_options,
    decide_public,
    describe_missing_device,
    describe_other_version,
)
from nodeagent.components.cdi.plan_specs import HOOK_PROGRAM, SpecPlan, plan_specs, render_specs
from nodeagent.components.cdi.registry import SpecReading, describe_conflicts, find_conflicts, is_spec_name, parse_spec
from nodeagent.components.cdi.spec import render_spec_name
from nodeagent.components.inventory.diff import decide_inventory
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.log.lines import configure_logging
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.edge.host.files.host_program import HostProgram
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.cdi import DriverFiles, SpecContent
from nodeagent.model.driver import LibraryAnswer
from nodeagent.model.errors import DriverError, NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.values import Value


def generate(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print or write a single specification."""
    settings = load_for(arguments, read_environment()).settings
    configure_logging(form=settings.log.format, level="error")
    try:
        plan, problem = anyio.run(_plan, settings)
        rendered = render_specs(plan)
    except DriverError as error:
        raise CommandFailed(str(error), ExitCode.NO_DRIVER) from error
    except NodeagentError as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    content = rendered.get(render_spec_name(arguments.kind))
    for each in plan.left_out:
        print(f"nodeagent: left out: {each}", file=streams.err)
    for path in plan.missing:
        print(f"nodeagent: {describe_missing_device(path)}: containers start without it", file=streams.err)
    if problem:
        print(f"nodeagent: {problem}: CUDA fails with them", file=streams.err)
    if content is None:
        kinds = ", ".join(spec.kind for spec in plan.specs) or "none, because there is no device to describe"
        raise CommandFailed(f"nothing to write for {arguments.kind}; this node has: {kinds}", ExitCode.UNREACHABLE)
    _put_out(content, arguments.output, streams)
    return ExitCode.UNWELL if plan.left_out or plan.missing or problem else ExitCode.OK


def list_devices(arguments: argparse.Namespace, streams: Streams) -> int:
    """The device names that a runtime resolves."""
    settings = load_for(arguments, read_environment()).settings
    readings = [parse_spec(content) for content in _find_files(settings).read_nowait()]
    conflicts = find_conflicts(readings)
    names = [
        {"name": name, "file": reading.path, "resolves": name not in conflicts}
        for reading in readings
        for name in reading.names
    ]
    problems = [*describe_conflicts(conflicts).values(), *_describe_invalid(readings)]
    rows = [[str(each["name"]), "yes" if each["resolves"] else "no", str(each["file"])] for each in names]
    table = Table(["DEVICE", "RESOLVES", "FILE"], rows, nothing=_describe_nothing(settings))
    after = [f"problem: {problem}" for problem in problems]
    write_table(arguments, streams, {"devices": names, "problems": problems}, table, after)
    return ExitCode.UNWELL if problems else ExitCode.OK


def validate(arguments: argparse.Namespace, streams: Streams) -> int:
    """Judge files."""
    settings = load_for(arguments, read_environment()).settings
    contents = _read_files(arguments.files) if arguments.files else _find_files(settings).read_nowait()
    readings = [parse_spec(content) for content in contents]
    problems = _describe_invalid(readings)
    if not arguments.files:
        problems += describe_conflicts(find_conflicts(readings)).values()
    found = {"valid": not problems, "problems": problems, "files": [reading.path for reading in readings]}
    valid = [f"valid: {reading.path} ({reading.kind})" for reading in readings if not reading.problem]
    invalid = [f"problem: {problem}" for problem in problems]
    write_answer(arguments, streams, found, ("\n".join([*valid, *invalid]) or _describe_nothing(settings)) + "\n")
    return ExitCode.UNWELL if problems else ExitCode.OK


def _describe_nothing(settings: Settings) -> str:
    return f"no specification in {settings.cdi.dir} or the directories that runtimes read besides"


def _find_files(settings: Settings) -> SpecFiles:
    return SpecFiles(settings.cdi.dir, host=HostPaths(settings.node.host_root))


class NodeReading(Value, frozen=True):
    """The inputs of specifications: GPUs, the driver's files, and the word of the driver's library."""

    inventory: Inventory
    files: DriverFiles
    library: LibraryAnswer


async def read_node(settings: Settings) -> NodeReading:
    """Look at GPUs and driver now, without an agent.

    Raises:
        NodeagentError: There is no working driver, or its files cannot be read.
    """
    hardware = choose_hardware(LiveSettings(settings), settings.node.name or platform.node(), seed=1)
    worker = WorkerThread("driver files")
    failure: NodeagentError | None = None
    reading = NodeReading(inventory=Inventory(generation=1), files=DriverFiles(), library=LibraryAnswer())
    async with anyio.create_task_group() as tasks:
        await tasks.start(hardware.run, name="GPU source")
        try:
            inventory = decide_inventory(None, await hardware.gpus.read_inventory())
            source = hardware.driver_files or choose_driver_files(settings, worker)
            files = await source.read_driver_files([str(one.host) for one in settings.containers.extra_devices])
            library = (await hardware.probe.read_evidence()).library
            reading = NodeReading(inventory=inventory, files=files, library=library or LibraryAnswer())
        except NodeagentError as error:
            # Raised outside of the group, which would wrap it.
            failure = error
        tasks.cancel_scope.cancel()
    worker.close()
    if failure is not None:
        raise failure
    return reading


async def _plan(settings: Settings) -> tuple[SpecPlan, str]:
    """The specifications for this node now, and the driver files' problem, if any."""
    reading = await read_node(settings)
    layout = _choose_layout(settings, reading.files)
    requests = decide_options(decide_public((), (), wanted=True), layout, settings, None)
    problem = describe_other_version(reading.library.driver_version, reading.files)
    return plan_specs(reading.inventory, reading.files, requests), problem


def _choose_layout(settings: Settings, files: DriverFiles) -> Layout:
    """The agent's choice of layout, without the installation of the hook on the host."""
    path = settings.cdi.hook_dir / HOOK_PROGRAM
    if settings.cdi.hooks == "none" or files.made_up:
        return Layout()
    if settings.cdi.hooks == "auto":
        worker, host = WorkerThread("hook"), HostPaths(settings.node.host_root)
        try:
            HostProgram(worker, host=host, shared=settings.node.state_dir).check_nowait(path)
        except HostError as error:
            return Layout(reason=str(error))
        finally:
            worker.close()
    return Layout(hook=path)


def _put_out(content: bytes, output: str | None, streams: Streams) -> None:
    if output is None:
        streams.out.write(content.decode())
        return
    path = Path(output).absolute()
    if not is_spec_name(path.name):
        raise CommandFailed(f"{output}: runtimes read only names that end in .json or .yaml", ExitCode.BAD_INPUT)
    try:
        write_atomically(path, content)
    except HostError as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    print(f"written: {path}", file=streams.out)


def _read_files(names: Sequence[str]) -> tuple[SpecContent, ...]:
    contents = []
    for name in names:
        try:
            contents.append(SpecContent(path=name, content=read_bounded(Path(name))))
        except HostError as error:
            raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    return tuple(contents)


def _describe_invalid(readings: Sequence[SpecReading]) -> list[str]:
    return [f"{reading.path}: {reading.problem}" for reading in readings if reading.problem]
