"""`nodeagent top` as typed, against an agent's answer."""

import http.client
import json as plain_json
from pathlib import Path

import pytest
from msgspec import json

from nodeagent.cli.answers.client import AgentClient
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.cli.top import command as top
from nodeagent.components.web.api.records import StateRecord
from tests.support.programs.command_line import run_here
from tests.support.samples import make_uuid
from tests.unit.cli.top.test_view import make_record, make_state
from tests.unit.components.exporter.builders import allocate, make_process, make_sample

UID = "0f3c2b1a-1111-2222-3333-444455556666"


class Agent(AgentClient):
    """Answers with one state, or not at all."""

    where, simulated = "/run/nodeagent/admin.sock", ""

    def __init__(self, state: StateRecord | None) -> None:
        super().__init__(http.client.HTTPConnection("nowhere"), "nowhere")
        self._state = state

    def get(self, path: str) -> bytes:
        assert path == "/api/v1/state"
        if self._state is None:
            raise CommandFailed("no agent answers", ExitCode.UNREACHABLE)
        return json.encode(self._state)


def run(monkeypatch: pytest.MonkeyPatch, agent: Agent, *words: str) -> tuple[int, str, str]:
    """Exit code and both outputs."""
    monkeypatch.setattr(top, "find_agent", lambda _settings, _environ: agent)
    return run_here("top", *words)


def make_busy() -> StateRecord:
    """A GPU with one process of one pod."""
    record = make_record(make_sample(processes=(make_process(7),)), allocate("a", make_uuid(0), uid=UID))
    return make_state(record)


def test_processes_get_command_and_pod_from_this_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From /proc, while the agent's word on GPUs comes from the agent."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text(f"0::/kubepods/pod{UID}/{'c' * 64}\n")
    (tmp_path / "7/cmdline").write_bytes(b"python\x00train.py\x00")
    (tmp_path / "7/status").write_text("Name:\tpython\nPPid:\t1\nUid:\t4242424\t0\t0\t0\n")
    monkeypatch.setattr(top, "PROC", tmp_path)
    code, out, _ = run(monkeypatch, Agent(make_busy()), "--once")
    assert code == 0
    assert "ml/a" in out
    assert "python train.py" in out
    assert "4242424" in out


def test_json_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For scripts, which do not want a stream of screens."""
    code, out, _ = run(monkeypatch, Agent(make_busy()), "--json")
    assert code == 0
    assert plain_json.loads(out)["devices"][0]["processes"][0]["pid"] == 7


def test_simulated_processes_are_not_looked_up_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers may be those of somebody else here."""
    monkeypatch.setattr(top, "PROC", Path("/proc/must-not-be-read"))
    state = make_busy()
    fields = {name: getattr(state, name) for name in state.__struct_fields__} | {"gpu_source": "simulated:l40s"}
    assert run(monkeypatch, Agent(StateRecord(**fields)), "--once")[0] == 0


def test_where_there_is_no_terminal_one_look_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe gets one table, whether it was asked for or not; without an agent the reason and exit code 4."""
    assert run(monkeypatch, Agent(make_busy())) == run(monkeypatch, Agent(make_busy()), "--once")
    code, out, err = run(monkeypatch, Agent(None))
    assert (code, out) == (ExitCode.UNREACHABLE, "")
    assert "no agent answers" in err


def test_one_pod_is_shown_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds, and nothing where it holds nothing."""
    assert "ml/a" in run(monkeypatch, Agent(make_busy()), "--pod", "a")[1]
    _, out, err = run(monkeypatch, Agent(make_busy()), "--pod", "b", "-o", "json")
    assert plain_json.loads(out)["devices"] == []
    assert "nothing here is held by pod b" in err
