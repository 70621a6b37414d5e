"""Commands that change a running agent, over its admin socket."""

import argparse

from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.main import Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment


def reload(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the agent read its configuration anew."""
    environ = read_environment()
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    print(agent.post("/api/v1/reload", {}), file=streams.out)
    return ExitCode.OK


def release(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the agent give up every GPU handle for a while."""
    environ = read_environment()
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    command: dict[str, object] = {"seconds": getattr(arguments, "for")}
    if arguments.reason:
        command["reason"] = arguments.reason
    print(agent.post("/api/v1/release", command), file=streams.out)
    return ExitCode.OK


def resume(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the agent take the driver back."""
    environ = read_environment()
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    print(agent.post("/api/v1/resume", {}), file=streams.out)
    return ExitCode.OK
