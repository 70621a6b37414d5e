"""Orders to a running agent, over its admin socket: the commands of `cli.commands` made from `model.orders`."""

import argparse
from collections.abc import Mapping

from nodeagent.cli.agent.settings import load_for
from nodeagent.cli.answers.answer import say_simulated
from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.table import read_environment
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.config.schema import Settings


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Give the chosen command's order, and print the agent's report."""
    environ = read_environment(arguments)
    agent, done = give(arguments, load_for(arguments, environ).settings, environ)
    print(f"{say_simulated(agent)}{done}", file=streams.out, flush=True)
    return ExitCode.OK


def give(
    arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str], *, to_simulation: bool = False
) -> tuple[AgentClient, str]:
    """Give the chosen command's order; the answering agent and its report."""
    order = arguments.chosen.order
    given = {name: getattr(arguments, name, None) for name in order.fields}
    given["who"] = environ.get("SUDO_USER") or environ.get("USER") or ""
    try:
        command = order.arguments(**{name: given[name] for name in order.fields if given[name] is not None})
    except ValueError as error:
        raise CommandFailed(str(error), ExitCode.BAD_INPUT) from error
    agent = find_agent(settings, environ, change=True, to_simulation=to_simulation)
    return agent, agent.give(order, command)
