"""Commands that change a running agent, over its admin socket."""

import argparse

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.answer import say_simulated
from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams


def reload(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the agent read its configuration again."""
    environ = read_environment(arguments)
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    _tell(agent, "/api/v1/reload", {}, streams)
    return ExitCode.OK


def release(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the agent give up every GPU handle for a while."""
    environ = read_environment(arguments)
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    command: dict[str, object] = {"seconds": getattr(arguments, "for")}
    if arguments.reason:
        command["reason"] = arguments.reason
    _tell(agent, "/api/v1/release", command, streams)
    return ExitCode.OK


def resume(arguments: argparse.Namespace, streams: Streams) -> int:
    """Have the agent take the driver back."""
    environ = read_environment(arguments)
    agent = find_agent(load_for(arguments, environ).settings, environ, change=True)
    _tell(agent, "/api/v1/resume", {}, streams)
    return ExitCode.OK


def _tell(agent: AgentClient, path: str, command: dict[str, object], streams: Streams) -> None:
    done = agent.post(path, command)
    print(f"{say_simulated(agent)}{done}", file=streams.out)
