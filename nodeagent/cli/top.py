"""`nodeagent top`: GPUs, pods and processes, again every two seconds; plain text, so that it works over any ssh."""

import argparse
import time
from pathlib import Path

from msgspec import json

from nodeagent.cli.answer import render_json, say_simulated
from nodeagent.cli.client import AgentClient, find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment, read_width, wants_colour
from nodeagent.cli.top_view import ProcessFacts, TopRecord, build_top, list_pids, render_top
from nodeagent.components.web.records import StateRecord
from nodeagent.edge.host.processes import parse_cgroup
from nodeagent.edge.host.pseudo_file import read_attribute, read_raw_attribute

PERIOD_SECONDS = 2.0
HOME_AND_CLEAR = "\x1b[H\x1b[2J"
COMMAND_LENGTH_MAX = 80
PROC = Path("/proc")


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Show the node's work once, or until interrupted."""
    environ = read_environment(arguments)
    settings = load_for(arguments, environ).settings
    is_once = arguments.once or arguments.json
    while True:
        try:
            agent = find_agent(settings, environ)
            state = json.decode(agent.get("/api/v1/state"), type=StateRecord)
            text = _render(build_top(state, _read_processes(state)), agent, arguments, streams)
        except CommandFailed as error:
            if is_once:
                raise
            text = f"{error}\n"
        if not is_once and streams.out.isatty():
            streams.out.write(HOME_AND_CLEAR)
        streams.out.write(text)
        streams.out.flush()
        if is_once:
            return ExitCode.OK
        time.sleep(PERIOD_SECONDS)


def _render(top: TopRecord, agent: AgentClient, arguments: argparse.Namespace, streams: Streams) -> str:
    if arguments.json:
        return render_json(top, agent)
    text = render_top(top, width=read_width(streams.out), colour=wants_colour(streams.out, read_environment()))
    return say_simulated(agent) + text


def _read_processes(state: StateRecord) -> dict[int, ProcessFacts]:
    """What this host knows of the processes; simulated ones are not on it."""
    if state.gpu_source != "nvml":
        return {}
    found = {}
    for pid in list_pids(state):
        cgroup = read_raw_attribute(PROC / str(pid) / "cgroup").decode("utf-8", "replace")
        if cgroup:
            raw = read_raw_attribute(PROC / str(pid) / "cmdline", limit_bytes=4096).replace(b"\x00", b" ")
            command = raw.decode("utf-8", "replace").strip() or read_attribute(PROC / str(pid) / "comm")
            found[pid] = ProcessFacts(command=command[:COMMAND_LENGTH_MAX], pod_uid=parse_cgroup(cgroup).pod_uid)
    return found
