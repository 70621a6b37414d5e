"""`nodeagent status`."""

import argparse
import time

from msgspec import json

from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.status_view import render_status
from nodeagent.cli.table import read_environment, read_width, wants_colour
from nodeagent.components.web.records import StateRecord

WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Show the node once, or again and again."""
    environ = read_environment()
    settings = load_for(arguments, environ).settings
    while True:
        try:
            agent = find_agent(settings, environ)
            body = agent.get("/api/v1/state")
            text, code = _render(agent.decode(body, StateRecord), body, arguments, streams)
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


def _render(state: StateRecord, body: bytes, arguments: argparse.Namespace, streams: Streams) -> tuple[str, int]:
    code = ExitCode.OK if state.verdict == "ok" else ExitCode.UNWELL
    if arguments.json:
        return json.format(body, indent=2).decode().rstrip() + "\n", code
    environ = read_environment()
    text = render_status(
        state, width=read_width(streams.out), colour=wants_colour(streams.out, environ), is_whole=arguments.all
    )
    return text, code
