"""`nodeagent status`."""

import argparse
import time

from msgspec import json

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.answer import say_simulated
from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.output import choose_layout, render_record, wants_record
from nodeagent.cli.answers.table import read_environment, wants_colour
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.node.status_view import render_status
from nodeagent.components.web.api.records import StateRecord

WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Show the node once, or again and again."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    while True:
        try:
            agent = find_agent(settings, environ)
            body = agent.get("/api/v1/state")
            text, code = _render(agent.decode(body, StateRecord), body, agent, arguments, streams)
        except CommandFailed as error:
            if not arguments.watch:
                raise
            text, code = f"{error}\n", error.code
        if arguments.watch and streams.out.isatty():
            streams.out.write(CLEAR)
        streams.out.write(text)
        streams.out.flush()
        if not arguments.watch:
            return code
        time.sleep(WATCH_SECONDS)


def _render(
    state: StateRecord, body: bytes, agent: AgentClient, arguments: argparse.Namespace, streams: Streams
) -> tuple[str, int]:
    code = ExitCode.OK if state.verdict == "ok" else ExitCode.UNWELL
    if wants_record(arguments):
        return render_record(arguments, json.decode(body), agent), code
    colour = wants_colour(streams.out, read_environment())
    layout = choose_layout(arguments, streams)
    return say_simulated(agent) + render_status(state, layout, colour=colour, is_whole=arguments.all), code
