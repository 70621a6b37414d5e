"""`nodeagent extender`."""

import argparse

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.edge.http.errors import HttpError
from nodeagent.edge.kube.errors import CredentialsInvalid
from nodeagent.extender.errors import SetupInvalid
from nodeagent.extender.program import ExtenderPlan, run_extender


def run(arguments: argparse.Namespace, _streams: Streams) -> int:
    """Run the scheduler's extender until a signal to stop."""
    environ = dict(read_environment())
    try:
        run_extender(ExtenderPlan(load_for(arguments, environ).settings, environ))
    except* (SetupInvalid, HttpError, CredentialsInvalid) as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise CommandFailed(str(first), ExitCode.BAD_INPUT) from None
    return ExitCode.OK
