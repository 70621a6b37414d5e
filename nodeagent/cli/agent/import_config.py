"""`nodeagent config import`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from nodeagent.cli.agent.settings import load_in_force
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.imports.engine import Imported, NamedFile, merge_imported
from nodeagent.config.imports.recognise import NotRecognised, import_text
from nodeagent.config.imports.render import check_file, list_values, nest_settings, render_file, render_values
from nodeagent.config.reload import ReloadPlan, decide_reload
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically

_STANDARD_INPUT = "-"


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Translate other programs' configuration into the agent's settings."""
    imported = _import_all(arguments.files, arguments.entry or "")
    values = list_values(imported)
    if values and not arguments.values:
        note = f"{', '.join(values)}: told to the chart and not to the agent; --values prints what the chart is told"
        imported = replace(imported, notes=(*imported.notes, note))
    try:
        settings = check_file(render_file(imported))
    except ConfigurationInvalid as error:
        lines = [str(problem) for problem in error.problems]
        raise CommandFailed("\nnodeagent: ".join(lines), ExitCode.BAD_INPUT) from error
    changes = (
        decide_reload(load_in_force(arguments, read_environment())[0].settings, settings) if arguments.check else None
    )
    text = render_values(imported) if arguments.values else render_file(imported)
    if arguments.json:
        found: dict[str, object] = {
            "settings": nest_settings(imported),
            "chart_values": values,
            "not_imported": list(imported.notes),
        }
        if changes is not None:
            found["changes"] = _list_changes(changes)
        print(json.dumps(found, indent=2), file=streams.out)
    elif changes is not None:
        streams.out.write(_describe_changes(changes))
    elif arguments.output is None:
        streams.out.write(text)
    else:
        _write(Path(arguments.output).absolute(), text, streams)
    for note in imported.notes:
        print(f"nodeagent: not imported: {note}", file=streams.err)
    return ExitCode.UNWELL if imported.notes else ExitCode.OK


def _list_changes(plan: ReloadPlan) -> list[dict[str, object]]:
    """Each setting with which this node would go on otherwise than now."""
    return [
        {"setting": change.path, "before": change.before, "after": change.after, "needs_restart": needs_restart}
        for changes, needs_restart in ((plan.changed_reloadable, False), (plan.changed_needs_restart, True))
        for change in changes
    ]


def _describe_changes(plan: ReloadPlan) -> str:
    if plan.is_empty:
        return "nothing would change on this node\n"
    parts = (("at once, on a reload", plan.changed_reloadable), ("from the next start on", plan.changed_needs_restart))
    blocks = (
        f"would change on this node {when}:\n" + "".join(f"  {each}\n" for each in some) for when, some in parts if some
    )
    return "".join(blocks)


def _import_all(names: Sequence[str], entry: str) -> Imported:
    """The files, and files of this machine that their options name."""
    parts = {name: _import(name, entry) for name in names}
    for named in merge_imported(parts).files:
        parts[named.path] = _import_named(named)
    return merge_imported(parts)


def _import_named(named: NamedFile) -> Imported:
    if named.is_in_pod:
        return Imported(notes=(f"{named.consequence}: the file is in the pod",))
    try:
        return _import(named.path, "")
    except CommandFailed as error:
        return Imported(notes=(f"{named.consequence}: {error}",))


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
