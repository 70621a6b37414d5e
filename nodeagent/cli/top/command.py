"""`nodeagent top`: GPUs, pods and processes, again every two seconds, with keys to sort, filter and see details."""

import argparse
import pwd
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.answer import Answerer, say_simulated
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.answers.output import choose_layout, render_record, wants_record
from nodeagent.cli.answers.selection import name_holders, narrow_gpus, warn_of_pod
from nodeagent.cli.answers.table import read_environment, wants_colour
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.cli.top.screen import Size, draw
from nodeagent.cli.top.state import TopState, press, settle
from nodeagent.cli.top.terminal import Terminal, end_by_signal, is_interactive
from nodeagent.cli.top.view import ProcessFacts, RateMeter, TopRecord, build_top, list_pids, render_top
from nodeagent.components.web.api.records import StateRecord
from nodeagent.config.schema import Settings
from nodeagent.edge.host.files.pseudo_file import read_attribute, read_raw_attribute
from nodeagent.edge.host.processes.device_holders import parse_cgroup

PERIOD_SECONDS = 2.0
COMMAND_LENGTH_MAX = 80
PROC = Path("/proc")
NOTHING_YET = TopRecord(
    node="nodeagent",
    time_seconds=0.0,
    sentence="asking the agent",
    sample_age_seconds=None,
    sample_is_old=False,
    devices=(),
)


def run(arguments: argparse.Namespace, streams: Streams) -> int:
    """Show the node's work: on a terminal until the user quits, else once."""
    environ = read_environment(arguments)
    settings = load_for_looking(arguments, environ)
    if arguments.once or wants_record(arguments) or not is_interactive(streams.out, environ.get("TERM", "")):
        return _show_once(arguments, streams, settings, environ)
    meter = RateMeter()
    with end_by_signal():
        _show_live(lambda: _look(arguments, settings, environ, meter), streams, environ)
    return ExitCode.OK


def _show_once(arguments: argparse.Namespace, streams: Streams, settings: Settings, environ: Mapping[str, str]) -> int:
    agent, state = _ask(settings, environ)
    warn_of_pod(arguments.pod, name_holders(state.gpus.gpus if state.gpus is not None else ()), streams)
    state = _narrow(state, arguments)
    top = build_top(state, _read_processes(state))
    if wants_record(arguments):
        streams.out.write(render_record(arguments, top, agent))
    else:
        colour = wants_colour(streams.out, environ)
        streams.out.write(say_simulated(agent) + render_top(top, choose_layout(arguments, streams), colour=colour))
    return ExitCode.OK


def _look(arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str], meter: RateMeter) -> TopRecord:
    state = _narrow(_ask(settings, environ)[1], arguments)
    return build_top(state, _read_processes(state), meter.update(state))


def _ask(settings: Settings, environ: Mapping[str, str]) -> tuple[Answerer, StateRecord]:
    agent = find_agent(settings, environ)
    return agent, agent.read("/api/v1/state", StateRecord)


def _narrow(state: StateRecord, arguments: argparse.Namespace) -> StateRecord:
    if state.gpus is None:
        return state
    return replace(state, gpus=narrow_gpus(state.gpus, arguments.gpu, arguments.pod))


class _Looker:
    """Polls every two seconds in a thread of its own, so that keys work while an agent does not answer."""

    def __init__(self, look: Callable[[], TopRecord], wake: Callable[[], None]) -> None:
        self._look, self._wake = look, wake
        self._ended = threading.Event()
        self.seen = NOTHING_YET
        self.problem = ""
        # A daemon thread, so that quitting does not wait for an answer that is ten seconds late.
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.seen, self.problem = self._look(), ""
            except CommandFailed as error:
                self.problem = str(error)
            except Exception as error:  # noqa: BLE001 - every error is shown to the user at the screen
                self.problem = f"the last look failed: {type(error).__name__}: {error}"
            self._wake()
            self._ended.wait(PERIOD_SECONDS)


def _show_live(look: Callable[[], TopRecord], streams: Streams, environ: Mapping[str, str]) -> None:
    colour, state = wants_colour(streams.out, environ), TopState()
    with Terminal(sys.stdin, streams.out) as terminal:
        looker = _Looker(look, terminal.wake)
        looker.start()
        try:
            while not state.has_ended:
                size = Size(*terminal.read_size())
                screen = draw(looker.seen, state, size, colour=colour, problem=looker.problem)
                state = settle(state, screen.last_first)
                terminal.draw(screen.lines)
                for key in terminal.wait():
                    state = press(state, key, looker.seen, size.body)
        except EOFError:
            pass  # the terminal is gone
        finally:
            looker.end()


def _read_processes(state: StateRecord) -> dict[int, ProcessFacts]:
    """This host's facts about the processes; simulated processes are not on the host."""
    if state.gpu_source != "nvml":
        return {}
    return {pid: facts for pid in list_pids(state) if (facts := _read_process(PROC / str(pid))) is not None}


def _read_process(process: Path) -> ProcessFacts | None:
    cgroup = read_raw_attribute(process / "cgroup").decode("utf-8", "replace")
    if not cgroup:
        return None
    raw = read_raw_attribute(process / "cmdline", limit_bytes=4096).replace(b"\x00", b" ")
    command = raw.decode("utf-8", "replace").strip() or read_attribute(process / "comm")
    status = read_raw_attribute(process / "status").decode("utf-8", "replace")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    parent = fields.get("PPid", "")
    return ProcessFacts(
        command=command[:COMMAND_LENGTH_MAX],
        pod_uid=parse_cgroup(cgroup).pod_uid,
        user=_name_user(fields.get("Uid", "").partition("\t")[0]),
        parent=int(parent) if parent.isdigit() else 0,
    )


def _name_user(number: str) -> str:
    """The user's name on this host; the bare number of an unknown user, as of most containers."""
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (ValueError, KeyError):
        return number
