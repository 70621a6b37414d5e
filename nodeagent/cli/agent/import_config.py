"""`nodeagent config import`."""

import argparse
import json
import sys
from pathlib import Path

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.imports.engine import Imported, merge_imported
from nodeagent.config.imports.recognise import NotRecognised, import_text
from nodeagent.config.imports.render import check_file, nest_settings, render_file
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically

_STANDARD_INPUT = "-"


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Translate other programs' configuration into the agent's settings."""
    imported = merge_imported({name: _import(name, arguments.entry or "") for name in arguments.files})
    text = render_file(imported)
    try:
        check_file(text)
    except ConfigurationInvalid as error:
        lines = [str(problem) for problem in error.problems]
        raise CommandFailed("\nnodeagent: ".join(lines), ExitCode.BAD_INPUT) from error
    if arguments.json:
        found = {"settings": nest_settings(imported), "not_imported": list(imported.notes)}
        print(json.dumps(found, indent=2), file=streams.out)
    elif arguments.output is None:
        streams.out.write(text)
    else:
        _write(Path(arguments.output).absolute(), text, streams)
    for note in imported.notes:
        print(f"nodeagent: not imported: {note}", file=streams.err)
    return ExitCode.UNWELL if imported.notes else ExitCode.OK


def _import(name: str, entry: str) -> Imported:
    try:
        if name == _STANDARD_INPUT:
            return import_text("standard input", sys.stdin.read(), entry=entry)
        path = Path(name).absolute()
        return import_text(str(path), read_bounded(path).decode("utf-8"), entry=entry)
    except (NotRecognised, HostError) as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"cannot import {name}: it is not text in UTF-8", ExitCode.BAD_INPUT) from error


def _write(path: Path, text: str, streams: Streams) -> None:
    try:
        write_atomically(path, text.encode(), mode=0o644)
    except HostError as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    print(f"written: {path}", file=streams.out)
