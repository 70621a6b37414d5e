"""`nodeagent top`: GPUs, pods and processes, again every two seconds; plain text, so that it works over any ssh."""

import argparse
import time
from pathlib import Path

from msgspec import json
from msgspec.structs import replace

from nodeagent.cli.client import find_agent
from nodeagent.cli.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.output import choose_layout, render_record, wants_record
from nodeagent.cli.selection import name_pod, narrow_gpus, warn_of_pod
from nodeagent.cli.settings import load_for
from nodeagent.cli.table import read_environment, wants_colour
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
    environ = read_environment()
    settings = load_for(arguments, environ).settings
    is_once = arguments.once or wants_record(arguments)
    while True:
        try:
            state = json.decode(find_agent(settings, environ).get("/api/v1/state"), type=StateRecord)
            state = _narrow(state, arguments, streams)
            text = _render(build_top(state, _read_processes(state)), arguments, streams)
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


def _narrow(state: StateRecord, arguments: argparse.Namespace, streams: Streams) -> StateRecord:
    if state.gpus is None:
        return state
    warn_of_pod(arguments.pod, (name_pod(one) for one in state.allocations), streams)
    return replace(state, gpus=narrow_gpus(state.gpus, arguments.gpu, arguments.pod))


def _render(top: TopRecord, arguments: argparse.Namespace, streams: Streams) -> str:
    if wants_record(arguments):
        return render_record(arguments, top)
    return render_top(top, choose_layout(arguments, streams), colour=wants_colour(streams.out, read_environment()))


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
