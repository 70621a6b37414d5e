"""`nodeagent simulate fault`."""

import argparse

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.orders import give
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Inject a fault into the running simulation, or list the faults."""
    environ = read_environment(arguments)
    _, done = give(arguments, load_for(arguments, environ).settings, environ, to_simulation=True)
    print(done, file=streams.out)
    return ExitCode.OK
