"""`nodeagent gpu doors|set-door`: the allocation mode of each GPU, and the choice of another mode."""

import argparse
import time
from collections.abc import Mapping

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.answer import say_simulated
from nodeagent.cli.answers.asking import API, ask
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.answers.orders import give
from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.view import tabulate_allocation_modes
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.schema import Settings
from nodeagent.model.offering import GpuAllocationMode

POLL_INTERVAL_SECONDS = 1.0
"""Pause between polls of the GPU's remaining holders."""


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The allocation mode of each GPU."""
    agent, doors = ask(arguments, "doors", tuple[GpuAllocationMode, ...])
    shown = tuple(each for each in doors if arguments.gpu is None or _is_named(each, arguments.gpu))
    write_table(arguments, streams, shown, tabulate_allocation_modes(shown), (), agent)
    return ExitCode.OK


def choose(arguments: argparse.Namespace, streams: Streams) -> int:
    """Choose another allocation mode for a GPU, and wait for the change with `--wait`."""
    environ = read_environment(arguments)
    settings = load_for(arguments, environ).settings
    agent, done = give(arguments, settings, environ)
    print(f"{say_simulated(agent)}{done}", file=streams.out, flush=True)
    # The flag without a value waits without a limit; no flag is a wait of 0.
    return _wait(arguments, settings, environ, streams, told=done) if arguments.wait != 0 else ExitCode.OK


def _is_named(door: GpuAllocationMode, name: str) -> bool:
    return name in {door.gpu, str(door.index), door.address}


def _wait(
    arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str], streams: Streams, *, told: str
) -> int:
    """A line for each change, until the mode is as wanted or the time is up."""
    until = None if arguments.wait is None else time.monotonic() + arguments.wait
    while True:
        doors = find_agent(settings, environ).read(f"{API}/doors", tuple[GpuAllocationMode, ...])
        found = next((each for each in doors if _is_named(each, arguments.gpu)), None)
        if found is None:
            raise CommandFailed(f"GPU {arguments.gpu} is not there any more; its door is remembered", ExitCode.UNWELL)
        if found.describe() != told:
            told = found.describe()
            print(told, file=streams.out, flush=True)
        if found.is_settled:
            return ExitCode.OK
        if until is not None and time.monotonic() >= until:
            raise CommandFailed(
                f"still waiting after {arguments.wait:g} s; the door changes by itself when nobody has the GPU",
                ExitCode.UNWELL,
            )
        time.sleep(POLL_INTERVAL_SECONDS)
