"""`nodeagent events`."""

import argparse

from msgspec import json

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.answer import mark, say_simulated
from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.output import wants_record, write_answer
from nodeagent.cli.answers.selection import find_gpu, list_uuids
from nodeagent.cli.answers.table import read_environment, read_width, wants_colour
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.node.events_view import FollowedEvents, render_chains
from nodeagent.components.web.api.records import EventRecord, GpusRecord
from nodeagent.components.web.page.chains import build_chains, describe_records, find_about

HISTORY = "/api/v1/events?follow=false"
LENGTH_MAX = 40
"""The most shown links of a chain; the rest of a storm of errors is counted."""


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Past events, and with `--follow` the next events too."""
    if arguments.last < 1:
        raise CommandFailed(f"--last {arguments.last}: give a number of 1 or more", ExitCode.BAD_INPUT)
    if arguments.follow and arguments.form == "yaml":
        raise CommandFailed("--follow -o yaml: what goes on has no end in YAML; use -o json", ExitCode.BAD_INPUT)
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    own = _find_own(find_agent(settings, environ), arguments.gpu) if arguments.gpu is not None else None
    agent = find_agent(settings, environ)
    events = agent.read(HISTORY, tuple[EventRecord, ...])
    about = find_about(((one.seq, one.value) for one in events), own) if own is not None else None
    if not wants_record(arguments):
        chains = build_chains(describe_records(events), arguments.last, about=about, length=LENGTH_MAX)
        colour = wants_colour(streams.out, environ)
        lines = render_chains(chains, width=read_width(streams.out), colour=colour)
        print(say_simulated(agent) + "\n".join(lines or ["nothing yet"]), file=streams.out)
    elif not arguments.follow:
        shown = [one for one in events if about is None or one.seq in about]
        write_answer(arguments, streams, shown, "", agent)
    if arguments.follow:
        newest = events[-1].seq if events else 0
        _follow(find_agent(settings, environ), newest, own, arguments, streams)
    return ExitCode.OK


def _follow(
    agent: AgentClient, newest: int, own: frozenset[str] | None, arguments: argparse.Namespace, streams: Streams
) -> None:
    followed = FollowedEvents(own)
    for _, data in agent.follow(f"/api/v1/events?since={newest}"):
        event = agent.decode(data, EventRecord)
        line = followed.render(event, width=read_width(streams.out))
        if arguments.json and followed.is_about(event):
            line = json.encode(mark(json.decode(data), agent.simulated)).decode() if agent.simulated else data.decode()
        if line:
            print(line, file=streams.out, flush=True)


def _find_own(agent: AgentClient, name: str) -> frozenset[str]:
    """The names of the GPU in events."""
    return list_uuids(find_gpu(agent.read("/api/v1/gpus", GpusRecord), name))
