"""The output of a command in the chosen form: text for people, JSON, YAML or names for scripts."""

import argparse
from collections.abc import Sequence

from msgspec import json, yaml

from nodeagent.cli.answers.answer import Answerer, NoAgent, mark, say_simulated
from nodeagent.cli.answers.table import Layout, Table, clean, lay_out, read_width
from nodeagent.cli.main import Streams

NO_AGENT = NoAgent()


def wants_record(arguments: argparse.Namespace) -> bool:
    """Whether a program reads the answer."""
    return bool(arguments.json) or getattr(arguments, "form", None) == "yaml"


def render_record(arguments: argparse.Namespace, record: object, answerer: Answerer = NO_AGENT) -> str:
    """The answer for programs; a simulation's answer carries its profile."""
    if answerer.simulated:
        record = mark(json.decode(json.encode(record)), answerer.simulated)
    if getattr(arguments, "form", None) == "yaml":
        # Through JSON, so that both forms agree on values that YAML would write in another way.
        return yaml.encode(json.decode(json.encode(record))).decode()
    return json.format(json.encode(record), indent=2).decode() + "\n"


def choose_layout(arguments: argparse.Namespace, streams: Streams) -> Layout:
    """The layout of tables, by flags and terminal."""
    return Layout(
        width=read_width(streams.out),
        wide=getattr(arguments, "form", None) == "wide",
        headers=not getattr(arguments, "no_headers", False),
    )


def write_answer(
    arguments: argparse.Namespace, streams: Streams, record: object, text: str, answerer: Answerer = NO_AGENT
) -> None:
    """Write an answer without a table, or with a table inside other text."""
    if wants_record(arguments):
        streams.out.write(render_record(arguments, record, answerer))
        return
    # Output without a header goes into a loop of a shell, where a sentence would be taken for a name or a row.
    is_bare = getattr(arguments, "form", None) == "name" or getattr(arguments, "no_headers", False)
    heard = streams.err if is_bare else streams.out
    heard.write(say_simulated(answerer))
    streams.out.write(text)


def write_table(
    arguments: argparse.Namespace,
    streams: Streams,
    record: object,
    table: Table,
    after: Sequence[str] = (),
    answerer: Answerer = NO_AGENT,
) -> None:
    """Write an answer with one table, and further lines for people."""
    if getattr(arguments, "form", None) == "name":
        names = table.names if table.names is not None else [row[0] for row in table.rows]
        lines = [clean(name) for name in dict.fromkeys(names)]
    else:
        layout = choose_layout(arguments, streams)
        lines = lay_out(table, layout)
        if layout.headers:
            lines += after
        elif not wants_record(arguments):
            # A script takes each line for a row, so sentences go to standard error.
            beside, lines = ([], lines) if table.rows else (lines, [])
            streams.err.write("".join(f"{line}\n" for line in (*beside, *after)))
    write_answer(arguments, streams, record, "".join(f"{line}\n" for line in lines), answerer)
