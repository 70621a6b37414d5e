"""`nodeagent run`."""

import argparse

from nodeagent.cli.agent.launch import launch
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams


def run(arguments: argparse.Namespace, _streams: Streams) -> int:
    """Run the agent until a signal to stop."""
    environ = dict(read_environment())
    launch(
        lambda node_label: load_for(arguments, environ, node_label=node_label),
        environ,
        require_driver=arguments.require_driver,
        awaits_gpu=arguments.await_gpu,
        patience_seconds=arguments.wait,
        is_standby=arguments.standby,
    )
    return ExitCode.OK
