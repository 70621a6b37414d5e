"""Says that an answer is about this machine, where a person could take it for that of a simulation."""

import argparse
from pathlib import Path
from typing import Final, TextIO

from nodeagent.cli.answers.places import ADMIN_SOCKET, list_simulations
from nodeagent.cli.answers.table import SIMULATION_VARIABLE, clean, read_environment
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import DirectoryNotPrivate
from nodeagent.edge.host.processes.socket_owners import can_connect

RUN_DIR: Final = Settings().node.run_dir
"""Where this machine's own agent is, unless its configuration says otherwise."""


def tell_machine(arguments: argparse.Namespace, heard: TextIO, run_dir: Path = RUN_DIR) -> None:
    """One line for people beside the answer, where simulations run and other commands would be about them.

    Nothing is said to programs, nor where the command line names what is looked at.
    """
    is_record = getattr(arguments, "json", False) or getattr(arguments, "form", None) in ("json", "yaml")
    if is_record or getattr(arguments, "gpus", None) or getattr(arguments, "files", None):
        return
    environ = read_environment(arguments)
    try:
        running = list_simulations(environ)
    except DirectoryNotPrivate:
        return  # somebody else's, of which no command is about anything
    if running and (environ.get(SIMULATION_VARIABLE) or not can_connect(run_dir / ADMIN_SOCKET)):
        names = clean(", ".join(f"{one.name} (a made-up {one.profile})" for one in running))
        kind = "simulations" if len(running) > 1 else "simulation"
        print(f"nodeagent: this is about this machine, not about the {kind} {names}", file=heard)
