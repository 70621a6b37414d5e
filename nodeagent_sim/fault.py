"""`nodeagent simulate fault`."""

import argparse

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Inject a fault into the running simulation, or list the faults."""
    environ = read_environment(arguments)
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True, to_simulation=True)
    command = {"fault": arguments.fault or "help", "arguments": arguments.arguments}
    print(agent.post("/api/v1/faults", command), file=streams.out)
    return ExitCode.OK
