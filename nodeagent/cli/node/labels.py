"""`nodeagent labels` and `nodeagent render labels`."""

import argparse
import platform
import time

import anyio
from msgspec import json

from nodeagent.app.node_facts import observe_node
from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.asking import find_asked
from nodeagent.cli.answers.output import write_answer, write_table
from nodeagent.cli.answers.table import Table, clean, read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams, describe_first
from nodeagent.components.labeler.plan import render_features
from nodeagent.components.labeler.render import LabelSet, render_labels
from nodeagent.config.schema import Settings
from nodeagent.core.log.lines import configure_logging
from nodeagent.model.errors import DriverError, NodeagentError
from nodeagent.model.labels import LabelState

HEAD = ("LABEL", "WANTED", "IN PLACE")


def render(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print the labels for this node, from a single reading of the node."""
    settings = load_for(arguments, read_environment()).settings
    configure_logging(form=settings.log.format, level="error")
    rendered = _look(settings)
    write_answer(arguments, streams, rendered.labels, render_features(rendered.labels))
    for key in rendered.illegal:
        print(f"nodeagent: left out, no legal label: {clean(key)}", file=streams.err)
    return ExitCode.UNWELL if rendered.illegal else ExitCode.OK


def _look(settings: Settings) -> LabelSet:
    try:
        picture = anyio.run(observe_node, settings, settings.node.name or platform.node())
    except* DriverError as errors:
        raise CommandFailed(describe_first(errors), ExitCode.NO_DRIVER) from errors
    except* NodeagentError as errors:
        raise CommandFailed(describe_first(errors), ExitCode.BAD_INPUT) from errors
    return render_labels(picture, settings, {})


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """The running agent's wanted labels, and the labels in place."""
    agent = find_asked(arguments)
    body = agent.get("/api/v1/labels")
    # A union is no type for the type checker here, which expects a class.
    state: LabelState | None = agent.decode(body, LabelState | None)  # type: ignore[arg-type]
    record = json.decode(body)
    if state is None:
        write_table(arguments, streams, record, Table(HEAD, [], nothing="no labels yet"), answerer=agent)
    else:
        write_table(arguments, streams, record, _tabulate(state), _describe(state), agent)
    return ExitCode.OK if state is not None and not list_differences(state) else ExitCode.UNWELL


def list_differences(state: LabelState) -> list[str]:
    """The keys with a difference between wanted label and label in place."""
    keys = sorted(state.wanted.keys() | state.applied.keys())
    return [key for key in keys if state.wanted.get(key) != state.applied.get(key)]


def _tabulate(state: LabelState) -> Table:
    keys = sorted(state.wanted.keys() | state.applied.keys())
    return Table(HEAD, [[key, state.wanted.get(key, "(none)"), _say(state, key)] for key in keys])


def _describe(state: LabelState) -> list[str]:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.since_seconds))
    where = (
        f"to be written to: {state.sink}; unchanged since {since}"
        if state.sink
        else "written nowhere: labels.sinks is empty"
    )
    later = [f"{key}={value}" if value else f"{key} to go" for key, value in state.held_back.items()]
    held_back = [f"held back until it has lasted: {', '.join(later)}"] if later else []
    return ["", where, *held_back, *([f"last error: {clean(state.last_error)}"] if state.last_error else [])]


def _say(state: LabelState, key: str) -> str:
    if key not in state.applied:
        return "no"
    return "yes" if state.applied[key] == state.wanted.get(key) else state.applied[key]
