"""Notes that an answer is about this machine, where users could take it for a simulation's."""

import argparse
from pathlib import Path
from typing import Final, TextIO

from nodeagent.cli.answers.places import ADMIN_SOCKET, list_simulations
from nodeagent.cli.answers.table import SIMULATION_VARIABLE, clean, read_environment
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import DirectoryNotPrivate
from nodeagent.edge.host.processes.socket_owners import can_connect

RUN_DIR: Final = Settings().node.run_dir
"""The run directory of this machine's own agent by default."""


def tell_machine(arguments: argparse.Namespace, heard: TextIO, run_dir: Path = RUN_DIR) -> None:
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
