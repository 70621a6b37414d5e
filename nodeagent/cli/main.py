"""From the words on the command line to an exit code."""

import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from msgspec import Struct

from nodeagent.app.simulator import import_of_simulator
from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.parser import build_parser
from nodeagent.model.errors import SourceUnusable
from nodeagent.model.nvidia import CONTAINER_CLI

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
DESCRIBE_MACHINE = "nodeagent.cli.answers.answer:describe_machine"
CONTAINER_CLI_RUNS = "nodeagent.cli.container_cli:run"


class Streams(Struct, frozen=True):
    """The output streams of a command."""

    out: TextIO
    err: TextIO


class CommandFailed(Exception):
    """The command cannot be carried out; the message is complete for a user."""

    def __init__(self, message: str, code: ExitCode) -> None:
        super().__init__(message)
        self.code = code


def describe_first(errors: BaseExceptionGroup[BaseException]) -> str:
    """The first error of a group, in its own words."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def run_command_line(words: Sequence[str], streams: Streams) -> int:
    """Parse and run; every expected failure is one line on standard error."""
    arguments = build_parser(ROOT, words).parse_args(words)
    code: int = ExitCode.OK
    try:
        run: Callable[..., int] = _import_command(arguments.chosen.runs)
        if arguments.chosen.of_machine:
            _import_command(DESCRIBE_MACHINE)(arguments, streams.err)
        code = run(arguments, streams)
        # Flushed here, for an error of our own: at exit the interpreter complains with words and a code of its own.
        streams.out.flush()
    except CommandFailed as error:
        print(f"nodeagent: {error}", file=streams.err)
        return error.code
    except SourceUnusable as error:
        print(f"nodeagent: {error}", file=streams.err)
        return ExitCode.BAD_INPUT
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has read enough; the interpreter must not complain at exit.
        sys.stdout = None
    except OSError as error:
        # Commands report errors of named files themselves; an error without a name is about standard output.
        if error.errno not in NO_ROOM or error.filename is not None:
            raise
        sys.stdout = None
        print(f"nodeagent: cannot write the answer: {os.strerror(error.errno)}: make room for it", file=streams.err)
        return code or ExitCode.BAD_INPUT
    return code


def _import_command(where: str) -> Callable[..., Any]:
    """The function behind a command; an import makes no garbage, so the collector pauses meanwhile."""
    module, _, function = where.partition(":")
    gc.disable()
    try:
        run: Callable[..., Any] = getattr(import_of_simulator(module), function)
    finally:
        gc.enable()
    return run


def main() -> int:
    """The console script."""
    run = _import_command(CONTAINER_CLI_RUNS) if Path(sys.argv[0]).name == CONTAINER_CLI else run_command_line
    if sys.stdout is not None:
        return run(sys.argv[1:], Streams(sys.stdout, sys.stderr))
    # A caller that closed standard output wants no output.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        return run(sys.argv[1:], Streams(nowhere, sys.stderr))
