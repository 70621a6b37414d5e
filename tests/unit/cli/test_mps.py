"""The command about MPS daemons, with an agent that says what the test says."""

import json

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers import asking
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu import mps as commands
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.model.mps import MpsClient, MpsLimits, MpsPhase, MpsState
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.mps import daemon_of
from tests.support.programs.command_line import run_here

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")

A, B = gpu_uuid(0), gpu_uuid(1)
CLIENTS = (MpsClient(pid=10, pod="ml/train"), MpsClient(pid=11))


class Agent:
    """Says one state."""

    simulated = ""

    def __init__(self, state: MpsState) -> None:
        self._state = state

    def read(self, path: str, _kind: object) -> object:
        return self._state if path.endswith("/mps") else GpusRecord(generation=1, gpus=(GpuRecord(gpu=make_gpu(0)),))


def show(monkeypatch: pytest.MonkeyPatch, state: MpsState, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(asking, "find_agent", lambda *_, **__: Agent(state))
    code, out, _ = run_here("mps", *words)
    return code, out


def test_each_daemon_is_a_line_and_each_client_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is gone is called so; as JSON it is the state."""
    state = MpsState(daemons=(daemon_of(A, clients=CLIENTS), daemon_of(B, MpsPhase.WAITING, "it waits for ml/a (c)")))
    code, out = show(monkeypatch, state, "-o", "wide")
    assert code == ExitCode.OK
    _, first, second, *clients = [line for line in out.splitlines() if line]
    assert first.split()[:2] == ["0", "ready"]
    assert "25%, 1024 MiB" in first
    assert second.split()[:2] == ["gone", "waiting"]
    assert "it waits for ml/a (c)" in second
    assert clients == [
        f"{A}: process 10 of ml/train, through server 4712",
        f"{A}: process 11 of the host, through server 4712",
    ]
    assert len(json.loads(show(monkeypatch, state, "--json")[1])["daemons"]) == 2


def test_one_that_is_broken_is_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that scripts need not read."""
    assert show(monkeypatch, MpsState(daemons=(daemon_of(A, MpsPhase.BROKEN, "it ended"),)))[0] == ExitCode.UNWELL
    code, out = show(monkeypatch, MpsState())
    assert (code, "no MPS daemon: `sharing.mps`" in out) == (ExitCode.OK, True)


def test_without_limits_there_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a claim that asks for none."""
    assert commands.describe_limits(replace(daemon_of(A), limits=MpsLimits())) == "none"
