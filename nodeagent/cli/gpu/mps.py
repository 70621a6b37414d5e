"""`nodeagent mps`."""

import argparse
import time
from collections.abc import Mapping

from nodeagent.cli.answers.asking import ask, ask_device_names
from nodeagent.cli.answers.output import write_table
from nodeagent.cli.answers.table import Table
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams
from nodeagent.model.mps import MpsDaemon, MpsState
from nodeagent.model.wording import render_age

HEAD = ("GPUS", "STATE", "FOR", "LIMITS", "CLIENTS", "STARTS", "SERVES", "PID", "REASON", "LAST FAULT", "NAME")


def show(arguments: argparse.Namespace, streams: Streams) -> int:
    """Each daemon, its limits and its clients."""
    agent, state = ask(arguments, "mps", MpsState)
    names = ask_device_names(arguments)
    write_table(arguments, streams, state, tabulate(state, names, now_seconds=time.time()), list_clients(state), agent)
    return ExitCode.UNWELL if any(state.list_troubled()) else ExitCode.OK


def tabulate(state: MpsState, names: Mapping[str, str], *, now_seconds: float) -> Table:
    """A line per daemon."""
    rows = [
        (
            ",".join(names.get(gpu, "gone") for gpu in one.gpus),
            str(one.phase),
            render_age(max(0.0, now_seconds - one.since_seconds)),
            describe_limits(one),
            str(len(one.clients)),
            str(one.starts),
            one.owner,
            "-" if one.pid is None else str(one.pid),
            one.reason or "-",
            one.last_fault or "-",
            one.name,
        )
        for one in state.daemons
    ]
    return Table(
        HEAD,
        rows,
        names=[one.name for one in state.daemons],
        giving_way=("SERVES", "STARTS"),
        wide=("PID", "LAST FAULT", "NAME"),
        nothing="no MPS daemon: `sharing.mps`, `mps.claims` or `fractions.enforcement: mps` asks for them",
    )


def describe_limits(daemon: MpsDaemon) -> str:
    """`25%, 10240 MiB`; with every size where the daemon's GPUs differ."""
    threads = daemon.limits.thread_percentage
    sizes = dict.fromkeys(daemon.limits.memory_mib.values())
    words = [*([f"{threads}%"] if threads is not None else []), *(f"{size} MiB" for size in sizes)]
    return ", ".join(words) or "none"


def list_clients(state: MpsState) -> list[str]:
    """A line per client, below the table."""
    return [
        f"{one.name}: process {client.pid} of {client.pod or 'the host'}, through server {server.pid}"
        for one in state.daemons
        for server in one.servers
        for client in server.clients
    ]
