"""The commands about MIG layouts, with made-up GPUs and an agent that says what the test says."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers.answer import NoAgent
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.mig import commands
from nodeagent.cli.mig.view import describe_gpu, describe_state, tabulate_gpus
from nodeagent.components.web.api.records import GpusRecord
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.rules.mig.layouts import read_layouts
from tests.support.command_line import run_here
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.mig import make_mig_gpu

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")

A100 = ("--gpus", "simulated:a100-80gb-mig")
H100 = ("--gpus", "simulated:dgx-h100")


def test_show_says_what_each_gpu_is_cut_into() -> None:
    """A line each; as JSON everything that the driver tells."""
    code, out, _ = run_here("mig", "show", *A100, "--no-headers")
    assert code == ExitCode.OK
    assert [line.split(maxsplit=1)[0] for line in out.splitlines()][-4:] == ["0", "1", "2", "3"]
    assert "7 x 1g.10gb" in out
    assert "1 x 3g.40gb + 1 x 2g.20gb + 2 x 1g.10gb" in out
    assert "MIG off" in out
    record = json.loads(run_here("mig", "show", *A100, "--json")[1])
    assert (record["state"], len(record["gpus"])) == (None, 4)


def test_a_mode_that_waits_is_told() -> None:
    """Beside what there is now."""
    gpu = make_mig_gpu(0, "a100-sxm4-40gb")
    assert gpu.mig is not None
    assert describe_gpu(replace(gpu, mig=replace(gpu.mig, pending=True))) == "MIG off, on after a reset"
    on = make_mig_gpu(0, "a100-sxm4-40gb", enabled=True)
    assert on.mig is not None
    assert describe_gpu(replace(on, mig=replace(on.mig, pending=False))) == "MIG on, not cut, off after a reset"
    assert describe_gpu(make_gpu(0)) == "knows no MIG"


def test_a_plan_reads_like_a_diff() -> None:
    """GPUs on which nothing changes are counted."""
    code, out, _ = run_here("mig", "plan", "all-1g.10gb", *A100)
    assert code == ExitCode.OK
    lines = out.splitlines()
    assert "GPU 1 (NVIDIA A100-SXM4-80GB)" in lines
    assert "  - 3g.40gb at slot 4" in lines
    assert "    1g.10gb at slot 0" in lines
    assert "  + 1g.10gb at slot 6" in lines
    assert lines[-1] == "1 of 4 GPUs stay as they are"
    record = json.loads(run_here("mig", "plan", "all-1g.10gb", *A100, "--json")[1])
    assert record["layout"] == "all-1g.10gb"
    assert record["gpus"][0]["lines"] == []


def test_a_plan_that_cannot_be_says_why(tmp_path: Path) -> None:
    """GPU by GPU; and what is wrong with the layout itself."""
    file = tmp_path / "layouts.yaml"
    file.write_text(
        "version: v1\nmig-configs:\n"
        "  twice: [{devices: all, mig-enabled: true, mig-devices: {4g.40gb: 2}}]\n"
        "  absent: [{devices: [99], mig-enabled: false}]\n"
        "  bad: [{}]\n"
    )
    code, out, _ = run_here("mig", "plan", "twice", "--layouts", str(file), *H100)
    assert code == ExitCode.UNWELL
    assert "GPU 7 (NVIDIA H100 80GB HBM3): cannot be had: 4g.40gb does not fit 2 times" in out
    assert run_here("mig", "plan", "absent", "--layouts", str(file), *H100)[:2][0] == ExitCode.UNWELL
    code, _, err = run_here("mig", "plan", "bad", "--layouts", str(file), *H100)
    assert code == ExitCode.BAD_INPUT
    assert "there is no layout bad" in err
    assert "mig-configs.bad[0].devices: it is missing" in err
    code, _, err = run_here("mig", "plan", "x", "--layouts", str(tmp_path / "none"), *H100)
    assert (code, "none" in err) == (ExitCode.BAD_INPUT, True)


def test_layouts_of_the_configuration_are_known(tmp_path: Path) -> None:
    """By name, before those of a file."""
    config = tmp_path / "config.yaml"
    config.write_text("mig:\n  layouts:\n    - {name: lab, devices: {7g.80gb: 1}}\n")
    assert "+ 7g.80gb at slot 0" in run_here("mig", "plan", "lab", "-c", str(config), *H100)[1]


def test_an_assertion_is_silent_where_it_holds(tmp_path: Path) -> None:
    """And says of each GPU why not where it does not."""
    assert run_here("mig", "assert", "all-disabled", *H100) == (ExitCode.OK, "", "")
    code, out, _ = run_here("mig", "assert", "all-1g.10gb", *A100)
    assert (code, out.splitlines()) == (
        ExitCode.UNWELL,
        [f"GPU {index}: it is not 7 x 1g.10gb" for index in (1, 2, 3)],
    )
    file = tmp_path / "layouts.yaml"
    file.write_text("version: v1\nmig-configs: {one: [{devices: [0], mig-enabled: false}]}\n")
    code, out, _ = run_here("mig", "assert", "one", "--layouts", str(file), *H100)
    assert (code, out.splitlines()[0]) == (ExitCode.UNWELL, "GPU 1: the layout says nothing of it")


def test_what_is_exported_asserts(tmp_path: Path) -> None:
    """As YAML and as JSON, under the name that was asked for."""
    text = run_here("mig", "export", "--name", "lab", *A100)[1]
    assert list(read_layouts(text, "f").layouts) == ["lab"]
    file = tmp_path / "layouts.json"
    file.write_text(run_here("mig", "export", "--json", *A100)[1])
    assert run_here("mig", "assert", "current", "--layouts", str(file), *A100)[0] == ExitCode.OK
    assert json.loads(run_here("mig", "export", "-o", "json", *A100)[1]) == json.loads(file.read_text())


class Agent:
    """Tells one state after the other, the last again and again."""

    simulated = ""

    def __init__(self, states: Iterator[MigState]) -> None:
        self._states, self._newest = states, MigState()
        self.told: list[Mapping[str, object]] = []

    def post(self, path: str, command: Mapping[str, object]) -> str:
        assert path == "/api/v1/layout"
        self.told.append(command)
        return "it is asked for"

    def read(self, _path: str, _kind: object) -> MigState:
        self._newest = next(self._states, self._newest)
        return self._newest


def apply(
    monkeypatch: pytest.MonkeyPatch, states: Sequence[MigState], *words: str
) -> tuple[Agent, int, list[str], str]:
    agent = Agent(iter(states))
    monkeypatch.setattr(commands, "find_agent", lambda *_, **__: agent)
    monkeypatch.setattr(commands, "LOOK_SECONDS", 0.0)
    monkeypatch.setenv("SUDO_USER", "me")
    code, out, err = run_here("mig", "apply", *words)
    return agent, code, out.splitlines(), err


def changing(doing: str) -> MigState:
    change = GpuChange(gpu=gpu_uuid(3), index=3, wanted="x", doing=doing)
    return MigState(layout="all-enabled", origin="me", standing="pending", changes=(change,))


DONE = MigState(layout="all-enabled", origin="me", standing="success")


def test_apply_asks_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a name for the layout that is asked for already; without --wait it does not wait."""
    agent, code, out, _ = apply(monkeypatch, (), "all-enabled")
    assert (code, out) == (ExitCode.OK, ["it is asked for"])
    assert agent.told == [{"layout": "all-enabled", "who": "me"}]
    assert apply(monkeypatch, ())[0].told == [{"layout": "", "who": "me"}]


def test_apply_waits_with_a_line_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is in place, or has failed, or the time is up."""
    states = (changing("begins"), changing("begins"), changing("switch MIG on"), DONE)
    _, code, out, _ = apply(monkeypatch, states, "all-enabled", "--wait")
    assert code == ExitCode.OK
    assert out[1:] == ["GPU 3: begins", "GPU 3: switch MIG on", "all-enabled is in place"]
    failed = replace(DONE, standing="failed", detail="GPU 3: no")
    _, code, _, err = apply(monkeypatch, (failed,), "all-enabled", "--wait")
    assert (code, "all-enabled is not in place: GPU 3: no" in err) == (ExitCode.UNWELL, True)
    _, code, _, err = apply(monkeypatch, (changing("waits"),), "all-enabled", "--wait", "1ms")
    assert (code, "the agent goes on" in err) == (ExitCode.UNWELL, True)


def test_show_says_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an agent runs that cuts GPUs."""
    gpus = [make_gpu(3), make_gpu(4)]
    table = tabulate_gpus(gpus, changing("switch MIG on"))
    assert [row[3] for row in table.rows] == ["switch MIG on", "-"]
    assert describe_state(replace(DONE, detail="x")) == ["asked for: all-enabled (me), success: x"]
    assert describe_state(MigState()) == describe_state(None) == []
    monkeypatch.setattr(commands, "find_agent", lambda *_, **__: Agent(iter([DONE])))
    monkeypatch.setattr(commands, "read_gpus", _read_nothing)
    assert "asked for: all-enabled (me), success" in run_here("mig", "show")[1]


def _read_nothing(*_: object) -> tuple[object, object]:
    return NoAgent(), GpusRecord(generation=0)
