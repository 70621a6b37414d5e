"""The source of an answer: a simulation's answer is marked by a first line, or by a field."""

import argparse
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

from nodeagent.cli.answers.places import ADMIN_SOCKET, list_simulations
from nodeagent.cli.answers.table import SIMULATION_VARIABLE, clean, read_environment
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import DirectoryNotPrivate
from nodeagent.edge.host.processes.socket_owners import can_connect

FIELD = "simulated"


class Answerer(Protocol):
    """The source of an answer."""

    where: str
    simulated: str
    """The hardware profile of the answering simulation; empty for a node."""


class NoAgent:
    """The source of an answer without an agent: the driver, or a source named on the command line."""

    where = ""
    simulated = ""


def say_simulated(answerer: Answerer) -> str:
    """The first line of a simulation's answer; empty for this node's answer."""
    if not answerer.simulated:
        return ""
    return f"{answerer.where}: a made-up {answerer.simulated}; nothing of this is about this machine\n"


def mark(document: Any, profile: str) -> Any:
    """The document with a field that marks the simulation, a list in each of its entries."""
    if not profile:
        return document
    if isinstance(document, dict):
        return {FIELD: profile, **document}
    if isinstance(document, list):
        return [mark(entry, profile) for entry in document]
    return document


RUN_DIR: Final = Settings().node.run_dir
"""The run directory of this machine's own agent by default."""


def describe_machine(arguments: argparse.Namespace, heard: TextIO, run_dir: Path = RUN_DIR) -> None:
    """A note for people beside the answer, while simulations run and answer other commands.

    No note for programs, nor for a command line that names its source.
    """
    is_record = getattr(arguments, "json", False) or getattr(arguments, "form", None) in ("json", "yaml")
    if is_record or getattr(arguments, "gpus", None) or getattr(arguments, "files", None):
        return
    environ = read_environment(arguments)
    try:
        running = list_simulations(environ)
    except DirectoryNotPrivate:
        return  # another user's simulations, which no command asks
    if running and (environ.get(SIMULATION_VARIABLE) or not can_connect(run_dir / ADMIN_SOCKET)):
        names = clean(", ".join(f"{one.name} (a made-up {one.profile})" for one in running))
        kind = "simulations" if len(running) > 1 else "simulation"
        print(f"nodeagent: this is about this machine, not about the {kind} {names}", file=heard)
