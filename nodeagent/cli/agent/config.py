"""`nodeagent config check|show|schema`."""

import argparse
import json

from nodeagent.cli.agent.settings import load_for, load_in_force
from nodeagent.cli.answers.output import wants_record, write_answer
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.explain import render_json, render_json_schema, render_table


def check(arguments: argparse.Namespace, streams: Streams) -> int:
    """Report every problem of the configuration."""
    try:
        loaded = load_for(arguments, read_environment())
    except CommandFailed as error:
        if wants_record(arguments) and isinstance(error.__cause__, ConfigurationInvalid):
            problems = [str(problem) for problem in error.__cause__.problems]
            write_answer(arguments, streams, {"valid": False, "problems": problems}, "")
            return error.code
        raise
    files = [str(file) for file in loaded.files]
    found = {"valid": True, "problems": [], "notices": list(loaded.notices), "files": files}
    lines = [
        *(f"note: {notice}" for notice in loaded.notices),
        f"valid: {', '.join(files) or 'no file, defaults only'}",
    ]
    write_answer(arguments, streams, found, "\n".join(lines) + "\n")
    return ExitCode.OK


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every setting, its value and origin, with the named configuration of the node's label."""
    loaded, recalled = load_in_force(arguments, read_environment())
    if recalled.in_force:
        print(f"with the configuration that the node label chose last: {recalled.in_force}", file=streams.err)
    for trouble in filter(None, (recalled.refusal, recalled.trouble)):
        print(f"without the configuration that the node label chose last: {trouble}", file=streams.err)
    table = render_table(loaded, only_set=arguments.changed) or "every setting has its default\n"
    write_answer(arguments, streams, render_json(loaded, only_set=arguments.changed), table)
    return ExitCode.OK


def schema(_arguments: argparse.Namespace, streams: Streams) -> int:
    """The JSON Schema of the file."""
    print(json.dumps(render_json_schema(), indent=2), file=streams.out)
    return ExitCode.OK
