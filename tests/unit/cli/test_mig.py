"""The commands about MIG layouts, with made-up GPUs and an agent that says what the test says."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nodeagent.cli.answers import orders
from nodeagent.cli.answers.answer import NoAgent
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu import mig as commands
from nodeagent.cli.gpu.mig_view import describe_changes, describe_gpu, describe_state, tabulate_gpus
from nodeagent.components.web.api.records import GpuRecord, GpusRecord, LayoutsRecord, record_layouts
from nodeagent.config.sections.mig import LayoutEntry, MigSettings
from nodeagent.model.mig import IN_LINE, GpuChange, MigState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode
from nodeagent.model.orders import APPLY_LAYOUT, LayoutCommand
from nodeagent.rules.mig.layouts import read_layouts
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.mig import make_mig_gpu
from tests.support.programs.command_line import run_here

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
    assert lines[-1] == "1 of 4 GPUs stays as it is"
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
    config = tmp_path / "config.yaml"
    config.write_text("mig:\n  layouts:\n    - {name: lab, devices: {7g.80gb: 1}}\n")
    assert "+ 7g.80gb at slot 0" in run_here("mig", "plan", "lab", "-c", str(config), *H100)[1]


def test_an_assertion_is_silent_where_it_holds(tmp_path: Path) -> None:
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


def test_plan_and_assertion_agree_on_a_layout_for_other_boards(tmp_path: Path) -> None:
    """Neither is silent about GPUs of which the layout says nothing, and both end alike where it covers none."""
    file = tmp_path / "layouts.yaml"
    file.write_text(
        "version: v1\nmig-configs:\n"
        "  elsewhere: [{devices: all, device-filter: ['0x233510DE'], mig-enabled: true, mig-devices: {1g.35gb: 7}}]\n"
        "  first: [{devices: [0], mig-enabled: false}]\n"
    )
    words = ("--layouts", str(file), *H100)
    problem = "the layout is for other boards than this node's: 8 x NVIDIA H100 80GB HBM3"
    code, out, _ = run_here("mig", "plan", "elsewhere", *words)
    assert (code, out.splitlines()[-1]) == (ExitCode.UNWELL, problem)
    assert "GPU 7 (NVIDIA H100 80GB HBM3): left as it is: the layout says nothing of it" in out
    code, out, _ = run_here("mig", "assert", "elsewhere", *words)
    assert (code, out.splitlines()[0]) == (ExitCode.UNWELL, problem)
    code, out, _ = run_here("mig", "plan", "first", *words)
    assert (code, out.count("the layout says nothing of it"), "1 of 8 GPUs stays as it is" in out) == (0, 7, True)
    code, out, _ = run_here("mig", "plan", "all-disabled", "--gpus", "simulated:t4")
    assert (code, "knows no MIG" in out) == (ExitCode.OK, True)


def test_an_unknown_layout_is_answered_with_what_is_near(tmp_path: Path) -> None:
    """Not with all layouts of a file for every board there ever was."""
    file = tmp_path / "layouts.yaml"
    many = "".join(f"  lab-{number}: [{{devices: all, mig-enabled: false}}]\n" for number in range(80))
    file.write_text("version: v1\nmig-configs:\n" + many)
    code, _, err = run_here("mig", "plan", "all-1g10gb", "--layouts", str(file), *H100)
    assert (code, "did you mean all-1g.10gb" in err) == (ExitCode.BAD_INPUT, True)
    assert len(err) < 200
    _, _, err = run_here("mig", "plan", "wxyz", "--layouts", str(file), *H100)
    assert "there is no layout wxyz: this node's boards have all-disabled, all-enabled, all-1g.10gb" in err
    assert "and 80 more are in the configuration and its layouts file" in err


def test_what_is_exported_asserts(tmp_path: Path) -> None:
    """As YAML and as JSON, under the name that was asked for."""
    text = run_here("mig", "export", "--name", "lab", *A100)[1]
    assert list(read_layouts(text, "f").layouts) == ["lab"]
    file = tmp_path / "layouts.json"
    file.write_text(run_here("mig", "export", "--json", *A100)[1])
    assert run_here("mig", "assert", "current", "--layouts", str(file), *A100)[0] == ExitCode.OK
    assert json.loads(run_here("mig", "export", "-o", "json", *A100)[1]) == json.loads(file.read_text())


class Agent:
    """Tells one state after the other, the last again and again; each time it is found it answers one question."""

    simulated = ""
    is_found = False

    def __init__(self, states: Iterator[MigState]) -> None:
        self._states, self._newest = states, MigState()
        self.told: list[LayoutCommand] = []

    def find(self, *_: object, **__: object) -> "Agent":
        self.is_found = True
        return self

    def give(self, order: object, command: LayoutCommand) -> str:
        assert order is APPLY_LAYOUT
        self._answer()
        self.told.append(command)
        return "it is asked for"

    def read(self, _path: str, _kind: object) -> MigState:
        self._answer()
        self._newest = next(self._states, self._newest)
        return self._newest

    def _answer(self) -> None:
        assert self.is_found, "it has hung up after the question before"
        self.is_found = False


def apply(
    monkeypatch: pytest.MonkeyPatch, states: Sequence[MigState], *words: str
) -> tuple[Agent, int, list[str], str]:
    agent = Agent(iter(states))
    for module in (commands, orders):
        monkeypatch.setattr(module, "find_agent", agent.find)
    monkeypatch.setattr(commands, "POLL_INTERVAL_SECONDS", 0.0)
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
    assert agent.told == [LayoutCommand(layout="all-enabled", who="me")]
    assert apply(monkeypatch, ())[0].told == [LayoutCommand(who="me")]


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


def test_a_mode_that_waits_for_a_boot_is_not_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was left alone is named."""
    waiting = replace(DONE, standing="rebooting", detail="GPU 3: no reset")
    _, code, _, err = apply(monkeypatch, (waiting,), "all-enabled", "--wait")
    assert (code, "all-enabled waits for the node to be booted: GPU 3: no reset" in err) == (ExitCode.UNWELL, True)
    _, _, out, _ = apply(monkeypatch, (replace(DONE, detail="GPU 4 is left"),), "all-enabled", "--wait")
    assert out[-1] == "all-enabled is in place; GPU 4 is left"


def test_apply_tells_scripts_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document a line; without --wait there is one."""
    states = (changing("begins"), changing("begins"), changing("switch MIG on"), DONE)
    _, code, out, err = apply(monkeypatch, states, "all-enabled", "--json", "--wait")
    told = [json.loads(line) for line in out]
    assert (code, err) == (ExitCode.OK, "")
    assert [one["state"]["changes"][0]["doing"] for one in told[:2]] == ["begins", "switch MIG on"]
    assert (told[-1]["said"], told[-1]["state"]["standing"]) == ("it is asked for", "success")
    _, _, (line,), _ = apply(monkeypatch, states, "all-enabled", "--json")
    assert json.loads(line)["state"]["standing"] == "pending"


def test_show_says_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an agent runs that cuts GPUs."""
    gpus = [make_gpu(3), make_gpu(4)]
    table = tabulate_gpus(gpus, changing("switch MIG on"))
    assert [row[3] for row in table.rows] == ["switch MIG on", "-"]
    assert describe_state(replace(DONE, detail="x")) == ["asked for: all-enabled (me), success: x"]
    assert describe_state(MigState()) == describe_state(None) == []
    monkeypatch.setattr(commands, "find_agent", Agent(iter([DONE])).find)
    monkeypatch.setattr(commands, "read_gpus", _read_nothing)
    assert "asked for: all-enabled (me), success" in run_here("mig", "show")[1]


def _read_nothing(*_: object) -> tuple[object, object]:
    return NoAgent(), GpusRecord(generation=0)


def read_behind_doors(*_: object) -> tuple[object, object]:
    """Three boards of an agent: behind the doors `fractions`, `whole` and one that is not known."""
    gpus = [make_mig_gpu(index, "h100-sxm5-80gb") for index in range(3)]
    doors = (AllocationMode.FRACTIONS, AllocationMode.WHOLE, None)
    records = [
        GpuRecord(gpu=gpu, door=None if door is None else standing_at(gpu.index, door))
        for gpu, door in zip(gpus, doors, strict=True)
    ]
    return NoAgent(), GpusRecord(generation=0, gpus=tuple(records))


def standing_at(index: int, door: AllocationMode) -> GpuAllocationMode:
    address = make_gpu(index).pci.address
    return GpuAllocationMode(
        gpu=gpu_uuid(index), index=index, address=address, door=door, wanted=door, reason="x", is_open=True
    )


def test_a_door_in_the_way_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A GPU that others look after is left as it is among all, and refused by name: as the agent will do it."""
    monkeypatch.setattr(commands, "read_gpus", read_behind_doors)
    code, out, _ = run_here("mig", "plan", "all-7g.80gb")
    assert (code, out.splitlines()[0]) == (
        ExitCode.OK,
        "GPU 0 (NVIDIA H100 80GB HBM3): left as it is: it goes through the door fractions",
    )
    assert out.count("+ 7g.80gb at slot 0") == 2
    assert "stay as they are" not in out
    file = tmp_path / "layouts.yaml"
    file.write_text("version: v1\nmig-configs: {one: [{devices: [0], mig-enabled: true}]}\n")
    code, out, _ = run_here("mig", "plan", "one", "--layouts", str(file))
    out = out.splitlines()[0]
    advice = "choose whole or none for it first, with `doors.rules` or `nodeagent gpu set-door 0 none`"
    assert (code, out) == (
        ExitCode.UNWELL,
        f"GPU 0 (NVIDIA H100 80GB HBM3): cannot be had: it goes through the door fractions: {advice}",
    )
    code, out, _ = run_here("mig", "assert", "all-7g.80gb")
    assert (code, out.splitlines()) == (
        ExitCode.UNWELL,
        [
            f"GPU 0: it is not 1 x 7g.80gb, and stays so, as it goes through the door fractions: {advice}",
            "GPU 1: it is not 1 x 7g.80gb",
            "GPU 2: it is not 1 x 7g.80gb",
        ],
    )


def test_a_door_is_in_nobodys_way_where_a_gpu_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "read_gpus", read_behind_doors)
    assert run_here("mig", "assert", "all-disabled")[:2] == (ExitCode.OK, "")
    assert run_here("mig", "plan", "all-disabled")[:2] == (ExitCode.OK, "3 of 3 GPUs stay as they are\n")


class LayoutsOnly:
    """An agent whose GPUs are read already, and which says where its layouts come from."""

    where, simulated = "here", ""

    def __init__(self, known: LayoutsRecord) -> None:
        self._known = known

    def find(self, *_: object, **__: object) -> "LayoutsOnly":
        return self

    def read_gpus(self, *_: object) -> tuple[object, object]:
        gpus = (GpuRecord(gpu=make_mig_gpu(0, "h100-sxm5-80gb")),)
        return self, GpusRecord(generation=1, gpus=gpus)

    def read(self, path: str, kind: type[LayoutsRecord]) -> LayoutsRecord:
        assert path == "/api/v1/layouts"
        return msgspec.json.decode(msgspec.json.encode(self._known), type=kind)


def test_layouts_are_those_of_the_agent_that_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of its configuration and of its file, whatever this command's own settings say."""
    file = tmp_path / "layouts.yaml"
    file.write_text("version: v1\nmig-configs: {filed: [{devices: all, mig-enabled: true}]}\n")
    running = MigSettings(layouts=(LayoutEntry(name="lab", devices={"7g.80gb": 1}),), layouts_file=file)
    agent = LayoutsOnly(record_layouts(running))
    for module in (commands, orders):
        monkeypatch.setattr(module, "find_agent", agent.find)
    monkeypatch.setattr(commands, "read_gpus", agent.read_gpus)
    config = tmp_path / "config.yaml"
    config.write_text("mig:\n  layouts:\n    - {name: mine, devices: {7g.80gb: 1}}\n")
    code, out, _ = run_here("mig", "plan", "lab", "-c", str(config))
    assert (code, "+ 7g.80gb at slot 0" in out) == (ExitCode.OK, True)
    assert run_here("mig", "plan", "filed")[0] == ExitCode.OK
    code, out, _ = run_here("mig", "assert", "lab")
    assert (code, out) == (ExitCode.UNWELL, "GPU 0: it is not 1 x 7g.80gb\n")
    code, _, err = run_here("mig", "plan", "mine", "-c", str(config))
    assert (code, "there is no layout mine" in err) == (ExitCode.BAD_INPUT, True)


def test_a_file_that_only_the_agent_can_see_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may run in a container with a root of its own; what is made of the hardware is known all the same."""
    agent = LayoutsOnly(record_layouts(MigSettings(layouts_file=tmp_path / "elsewhere.yaml")))
    for module in (commands, orders):
        monkeypatch.setattr(module, "find_agent", agent.find)
    monkeypatch.setattr(commands, "read_gpus", agent.read_gpus)
    assert run_here("mig", "plan", "all-disabled")[0] == ExitCode.OK
    code, _, err = run_here("mig", "plan", "filed")
    assert (code, "elsewhere.yaml" in err) == (ExitCode.BAD_INPUT, True)


def test_gpus_that_have_their_turn_to_come_are_counted() -> None:
    """Seven of them would stand in each line of those who wait for a layout."""
    changes = [GpuChange(gpu=gpu_uuid(index), index=index, wanted="x", doing=IN_LINE) for index in range(3)]
    assert describe_changes(changes) == "3 in line"
    changes[1] = replace(changes[1], doing="switch MIG on")
    assert describe_changes(changes) == "GPU 1: switch MIG on; 2 in line"
    assert describe_changes(changes[1:2]) == "GPU 1: switch MIG on"
