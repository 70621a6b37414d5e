"""`nodeagent labels` and `nodeagent render labels`."""

import argparse
import json
import platform
import time

import anyio
from msgspec import json as wire

from nodeagent.app.look import look_at_node
from nodeagent.cli.answer import render_json, say_simulated
from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import clean, read_environment, read_width, render_table
from nodeagent.components.labeler.feature_text import render_features
from nodeagent.components.labeler.render import LabelSet, render_labels
from nodeagent.config.schema import Settings
from nodeagent.edge.simulated.errors import UnknownProfile
from nodeagent.kernel.log import configure_logging
from nodeagent.model.errors import DriverError, NodeagentError
from nodeagent.model.labels import LabelState


def render(arguments: argparse.Namespace, streams: Streams) -> int:
    """Print the labels that this node should have, from one look at it."""
    settings = load_for(arguments, read_environment()).settings
    configure_logging(form=settings.log.format, level="error")
    rendered = _look(settings)
    if arguments.json:
        print(json.dumps(rendered.labels, indent=2), file=streams.out)
    else:
        streams.out.write(render_features(rendered.labels))
    for key in rendered.illegal:
        print(f"nodeagent: left out, no legal label: {clean(key)}", file=streams.err)
    return ExitCode.UNWELL if rendered.illegal else ExitCode.OK


def _look(settings: Settings) -> LabelSet:
    try:
        picture = anyio.run(look_at_node, settings, settings.node.name or platform.node())
    except* DriverError as errors:
        raise CommandFailed(_first(errors), ExitCode.UNREACHABLE) from errors
    except* (NodeagentError, UnknownProfile) as errors:
        raise CommandFailed(_first(errors), ExitCode.BAD_INPUT) from errors
    return render_labels(picture, settings, {})


def _first(errors: BaseExceptionGroup[BaseException]) -> str:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """What the running agent wants the labels to be, and what they are."""
    environ = read_environment(arguments)
    agent = find_agent(load_for(arguments, environ).settings, environ)
    body = agent.get("/api/v1/labels")
    state = wire.decode(body, type=LabelState | None)
    code = ExitCode.OK if state is not None and not list_differences(state) else ExitCode.UNWELL
    if arguments.json:
        streams.out.write(render_json(body, agent))
        return code
    streams.out.write(say_simulated(agent))
    if state is None:
        print("no labels yet", file=streams.out)
    else:
        _print_state(state, streams)
    return code


def list_differences(state: LabelState) -> list[str]:
    """The keys whose label in place is not the wanted one."""
    keys = sorted(state.wanted.keys() | state.applied.keys())
    return [key for key in keys if state.wanted.get(key) != state.applied.get(key)]


def _print_state(state: LabelState, streams: Streams) -> None:
    keys = sorted(state.wanted.keys() | state.applied.keys())
    rows = [[key, state.wanted.get(key, "(none)"), _say(state, key)] for key in keys]
    lines = render_table(["LABEL", "WANTED", "IN PLACE"], rows, width=read_width(streams.out))
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.since_seconds))
    where = (
        f"to be written to: {state.sink}; unchanged since {since}"
        if state.sink
        else "written nowhere: labels.sinks is empty"
    )
    print("\n".join([*lines, "", where]), file=streams.out)
    if state.last_error:
        print(f"last error: {clean(state.last_error)}", file=streams.out)


def _say(state: LabelState, key: str) -> str:
    if key not in state.applied:
        return "no"
    return "yes" if state.applied[key] == state.wanted.get(key) else state.applied[key]
