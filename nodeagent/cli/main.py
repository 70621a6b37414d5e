"""From the words on the command line to an exit code."""

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TextIO

from msgspec import Struct

from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.parser import build_parser

TELL_MACHINE = "nodeagent.cli.answers.machine:tell_machine"


class Streams(Struct, frozen=True):
    """Where a command writes."""

    out: TextIO
    err: TextIO


class CommandFailed(Exception):
    """The command cannot do what was asked; the message is all a person needs."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


def run_command_line(words: Sequence[str], streams: Streams) -> int:
    """Parse and run; every expected failure is one line on standard error."""
    arguments = build_parser(ROOT, words).parse_args(words)
    run: Callable[..., int] = _import_command(arguments.chosen.runs)
    if arguments.chosen.of_machine:
        _import_command(TELL_MACHINE)(arguments, streams.err)
    try:
        return run(arguments, streams)
    except CommandFailed as error:
        print(f"nodeagent: {error}", file=streams.err)
        return error.code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has what it wanted; the interpreter must not complain about it at exit.
        sys.stdout = None
        return ExitCode.OK


def _import_command(where: str) -> Callable[..., Any]:
    """The function behind a command; nothing of what is imported is garbage, so nothing is collected meanwhile."""
    module, _, function = where.partition(":")
    gc.disable()
    try:
        run: Callable[..., Any] = getattr(import_module(module), function)
    finally:
        gc.enable()
    return run


def main() -> int:
    """The console script."""
    return run_command_line(sys.argv[1:], Streams(sys.stdout, sys.stderr))
