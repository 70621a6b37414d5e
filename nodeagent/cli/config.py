"""`nodeagent config check|show|schema`."""

import argparse
import json

from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.explain import render_json, render_json_schema, render_table


def check(arguments: argparse.Namespace, streams: Streams) -> int:
    """Say everything that is wrong."""
    try:
        loaded = load_for(arguments, read_environment())
    except CommandFailed as error:
        if arguments.json and isinstance(error.__cause__, ConfigurationInvalid):
            problems = [str(problem) for problem in error.__cause__.problems]
            print(json.dumps({"valid": False, "problems": problems}, indent=2), file=streams.out)
            return error.code
        raise
    files = [str(file) for file in loaded.files]
    if arguments.json:
        found = {"valid": True, "problems": [], "notices": list(loaded.notices), "files": files}
        print(json.dumps(found, indent=2), file=streams.out)
        return ExitCode.OK
    for notice in loaded.notices:
        print(f"note: {notice}", file=streams.out)
    print(f"valid: {', '.join(files) or 'no file, defaults only'}", file=streams.out)
    return ExitCode.OK


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """Every value and its origin."""
    loaded = load_for(arguments, read_environment())
    if arguments.json:
        print(json.dumps(render_json(loaded), indent=2), file=streams.out)
    else:
        print(render_table(loaded, only_set=arguments.changed), file=streams.out)
    return ExitCode.OK


def schema(_arguments: argparse.Namespace, streams: Streams) -> int:
    """The JSON Schema of the file."""
    print(json.dumps(render_json_schema(), indent=2), file=streams.out)
    return ExitCode.OK
