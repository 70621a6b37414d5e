"""`nodeagent doctor`."""

import argparse
from pathlib import Path

import anyio

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.output import write_answer
from nodeagent.cli.answers.table import read_environment, read_width, wants_colour
from nodeagent.cli.doctor.bundle import write_bundle
from nodeagent.cli.doctor.checks import find_worst, run_checks
from nodeagent.cli.doctor.observe import find_hardware, look
from nodeagent.cli.doctor.verdicts import Grade, render_checks
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.load import Loaded
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging
from nodeagent.edge.host.errors import HostError

EXIT_CODES = {Grade.OK: ExitCode.OK, Grade.WARN: ExitCode.UNWELL, Grade.FAIL: ExitCode.CHECK_FAILED}


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Look, judge, print, and pack where asked."""
    environ = read_environment(arguments)
    loaded, problems = _load(arguments)
    settings = loaded.settings if loaded is not None else Settings()
    configure_logging(form=settings.log.format, level="error")
    notices = loaded.notices if loaded is not None else ()
    hardware, problem = find_hardware(settings)
    facts = anyio.run(lambda: look(settings, environ, hardware, problem, problems=problems, notices=notices))
    checks = run_checks(facts)
    width, colour = read_width(streams.out), wants_colour(streams.out, environ)
    report: dict[str, object] = {"worst": find_worst(checks), "checks": checks}
    heading = ""
    if facts.asked_simulation:
        report["asked_simulation"] = facts.asked_simulation
        heading = (
            f"the agent that answers is a simulation of {facts.asked_simulation}: "
            "what it says of itself is not about this machine\n"
        )
    write_answer(arguments, streams, report, heading + render_checks(checks, width=width, colour=colour))
    if arguments.bundle:
        try:
            write_bundle(Path(arguments.bundle), facts, checks, loaded, settings, environ)
        except HostError as error:
            raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
        print(f"written: {arguments.bundle}; look through it before you send it", file=streams.err)
    return EXIT_CODES[find_worst(checks)]


def _load(arguments: argparse.Namespace) -> tuple[Loaded | None, tuple[str, ...]]:
    """The settings, or their problems; the doctor goes on with the defaults then."""
    environ = read_environment()
    try:
        return load_for(arguments, environ), ()
    except CommandFailed as error:
        if isinstance(error.__cause__, ConfigurationInvalid):
            return None, tuple(str(problem) for problem in error.__cause__.problems)
        raise
