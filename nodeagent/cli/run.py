"""`nodeagent run`."""

import argparse

from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.launch import launch
from nodeagent.cli.main import Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment


def run(arguments: argparse.Namespace, _streams: Streams) -> int:
    """Run the agent until it is told to stop."""
    environ = dict(read_environment())
    launch(
        lambda node_label: load_for(arguments, environ, node_label=node_label),
        environ,
        require_driver=arguments.require_driver,
        patience_seconds=arguments.wait,
    )
    return ExitCode.OK
