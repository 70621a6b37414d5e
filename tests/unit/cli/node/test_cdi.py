"""`nodeagent cdi` as people type it, without an agent."""

import json
from pathlib import Path

import pytest

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.edge.host.files.cdi_files import SpecFiles
from tests.support.files.driver_tree import DriverTree
from tests.support.programs.command_line import run_here

pytestmark = pytest.mark.may_block("a made-up node's profile is read before anything is served")

MIG = "simulated:a100-80gb-mig"
DOCUMENT = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}],
}


def run(*words: str) -> tuple[int, str, str]:
    return run_here("cdi", *words)


def test_generate_prints_a_specification_of_this_nodes_devices() -> None:
    """The public kind unless another one is asked for, valid as it stands."""
    code, out, _ = run("generate", "--gpus", MIG)
    document = json.loads(out)
    assert (code, document["kind"]) == (ExitCode.OK, "nvidia.com/gpu")
    assert {"0:0", "all"} <= {device["name"] for device in document["devices"]}
    code, out, _ = run("generate", "--gpus", MIG, "--kind", "k8s.device-plugin.nvidia.com/gpu")
    assert json.loads(out)["kind"] == "k8s.device-plugin.nvidia.com/gpu"


def test_generate_writes_a_whole_file(tmp_path: Path) -> None:
    """What is written is what is printed, and validates."""
    path = tmp_path / "nvidia.json"
    assert run("generate", "--gpus", MIG, "-o", str(path))[0] == ExitCode.OK
    assert path.read_text() == run("generate", "--gpus", MIG)[1]
    assert run("validate", str(path))[1] == f"valid: {path} (nvidia.com/gpu)\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--kind", "nvidia.com/nothing"), ExitCode.UNREACHABLE, "this node has: k8s.device-plugin"),
        (("-o", "spec.txt"), ExitCode.BAD_INPUT, "end in .json or .yaml"),
        (("-o", "/nowhere/at/all.json"), ExitCode.BAD_INPUT, "cannot write /nowhere/at/all.json"),
        (("--gpus", "simulated:nonsense"), ExitCode.BAD_INPUT, "nonsense"),
    ],
)
def test_generate_says_what_it_cannot_do(words: tuple[str, ...], code: ExitCode, said: str) -> None:
    """One line, a code for scripts, and nothing written."""
    found, _, err = run("generate", "--gpus", MIG, *words)
    assert found == code
    assert said in err


def test_generate_names_what_it_leaves_out(tmp_path: Path) -> None:
    """GPUs without device nodes below the driver root have no entry; with none at all there is nothing to write."""
    code, out, err = run("generate", "--gpus", MIG, "--set", f"driver.root={tmp_path}")
    assert (code, out) == (ExitCode.UNREACHABLE, "")
    assert "left out" in err
    assert "no device to describe" in err


def test_generate_names_configured_devices_that_are_missing(tmp_path: Path) -> None:
    """By the setting and the path; what can be given is in the specification."""
    DriverTree(tmp_path).install("550.163.01")
    (tmp_path / "dev").mkdir()
    for name in ("nvidiactl", *(f"nvidia{minor}" for minor in range(8))):
        (tmp_path / "dev" / name).symlink_to("/dev/null")
    words = ("--gpus", "simulated:dgx-h100", "--set", f"driver.root={tmp_path}", "--set", "cdi.hooks=none")
    code, out, err = run("generate", *words, "--set", "containers.extra_devices=/dev/null,/dev/nowhere")
    assert code == ExitCode.UNWELL
    assert "containers.extra_devices: /dev/nowhere is missing on this host" in err
    paths = {node["path"] for node in json.loads(out)["containerEdits"]["deviceNodes"]}
    assert "/dev/null" in paths
    assert "/dev/nowhere" not in paths


def test_generate_says_when_the_files_are_not_the_drivers(tmp_path: Path) -> None:
    """The made-up driver calls itself 550.163.01, and what lies below the root has another version in its names."""
    DriverTree(tmp_path).install("550.163.01")
    assert "those of" not in run("generate", "--gpus", MIG, "--set", f"driver.root={tmp_path}")[2]
    other = tmp_path / "other"
    DriverTree(other).install("580.65.06")
    code, _, err = run("generate", "--gpus", MIG, "--set", f"driver.root={other}")
    assert code != ExitCode.OK
    assert "the driver in use is 550.163.01, the libraries found are those of 580.65.06" in err


def test_list_shows_which_names_resolve(tmp_path: Path) -> None:
    """A name that two files define resolves nowhere, and the files are named."""
    own = ("--set", f"cdi.dir={tmp_path}")
    (tmp_path / "a.json").write_text(json.dumps(DOCUMENT))
    code, out, _ = run("list", *own, "--json")
    (device,) = [each for each in json.loads(out)["devices"] if each["file"].startswith(str(tmp_path))]
    assert device["resolves"] is True
    (tmp_path / "b.json").write_text(json.dumps(DOCUMENT))
    code, out, _ = run("list", *own)
    assert code == ExitCode.UNWELL
    assert "both define nvidia.com/gpu=0" in out


def test_where_nothing_is_to_judge_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpecFiles, "read_nowait", lambda _: ())
    for command in ("validate", "list"):
        code, out, _ = run(command, "--set", f"cdi.dir={tmp_path}")
        assert (code, out.startswith(f"no specification in {tmp_path} or ")) == (ExitCode.OK, True)


def test_validate_judges_every_file_that_runtimes_read(tmp_path: Path) -> None:
    """Without names it takes the directories; a problem is a line and exit code 1."""
    own = ("--set", f"cdi.dir={tmp_path}")
    (tmp_path / "good.json").write_text(json.dumps(DOCUMENT))
    assert str(tmp_path / "good.json") in run("validate", *own)[1]
    (tmp_path / "bad.yaml").write_text("a: [")
    code, out, _ = run("validate", *own, "--json")
    assert code == ExitCode.UNWELL
    assert any("bad.yaml" in problem for problem in json.loads(out)["problems"])
    assert run("validate", str(tmp_path / "missing.json"))[0] == ExitCode.BAD_INPUT
