"""Clusters whose parts are of different releases."""

import subprocess
from pathlib import Path

import pytest

from tests.integration import matrix
from tests.integration.cluster.__main__ import main
from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.errors import NotBuilt, UnknownVersion
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.making import build as building
from tests.integration.cluster.versions import MATRIX, MODULE, OLDEST, RELEASES, VARIABLE, Versions


@pytest.mark.parametrize("text", ["", *MATRIX, "emulated=1.36 kubelet=1.36 containerd=1.7"])
def test_versions_are_read_as_they_are_written(text: str) -> None:
    assert Versions.parse(str(Versions.parse(text))) == Versions.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kubelets=1.34", "the parts are control_plane, emulated, kubelet, containerd"),
        ("kubelet=1.1", "kubernetes-1.36"),
    ],
)
def test_what_cannot_be_built_is_refused_with_what_can(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short_dir: Path
) -> None:
    with pytest.raises(UnknownVersion, match=words):
        Versions.parse(text)
    monkeypatch.setenv(VARIABLE, text)
    monkeypatch.setattr("tests.integration.cluster.__main__.require_cluster_machine", lambda: None)
    assert main(["build", "--root", str(short_dir / "place")]) == 2
    assert words in capsys.readouterr().err


def test_each_program_comes_from_the_module_of_its_part() -> None:
    """A kubelet of its own leaves the control plane alone; what is not named comes from the cluster's own module."""
    runtime = dict.fromkeys(("containerd", "containerd-shim-runc-v2", "ctr"), RELEASES / "containerd-2.3")
    assert Versions.parse("").modules == runtime
    assert Versions.parse("containerd=newest").modules == {}
    assert Versions.parse(OLDEST).modules == {"kubelet": RELEASES / "kubernetes-1.34", **runtime}
    whole = Versions.parse("control_plane=1.36 kubelet=1.36 containerd=1.7").modules
    assert {module.name for module in whole.values()} == {"kubernetes-1.36", "containerd-1.7"}
    assert whole["kube-apiserver"] == whole["kubectl"] == whole["kubelet"]
    assert whole["ctr"] == whole["containerd-shim-runc-v2"]


def test_the_control_plane_alone_emulates() -> None:
    versions = Versions.parse("emulated=1.34 kubelet=1.34")
    emulating = [process for process in PROCESSES if versions.list_flags(process) == ("--emulated-version=1.34",)]
    assert emulating == ["apiserver", "controllers", "scheduler"]
    assert not any(Versions().list_flags(process) for process in PROCESSES)


def test_programs_of_other_versions_stand_beside_the_newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program is missed by the command that builds it; built, it takes the place of the newest one of its name."""
    places = {MODULE: tmp_path / "newest", RELEASES / "kubernetes-1.34": tmp_path / "old"}
    monkeypatch.setattr(building, "read_plan", lambda module: module)
    monkeypatch.setattr(building, "build", lambda plan, say, module: places[module])
    monkeypatch.setattr(building, "find_binaries", lambda module: places[module] if module == MODULE else None)
    for folder, names in ((tmp_path / "newest", ("etcd", "kubelet")), (tmp_path / "old", ("kubelet",))):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    versions = Versions.parse(f"{OLDEST} containerd=newest")
    programs = building.build_programs(versions, print)
    assert programs.paths == {"etcd": tmp_path / "newest/etcd", "kubelet": tmp_path / "old/kubelet"}
    assert building.find_programs(Versions.parse("containerd=newest")).paths["kubelet"] == tmp_path / "newest/kubelet"
    with pytest.raises(
        NotBuilt, match=f"{VARIABLE}='kubelet=1.34 containerd=newest' python -m tests.integration.cluster build"
    ):
        building.find_programs(versions)


def test_the_matrix_is_told_in_the_developers_page() -> None:
    page = (CHECKOUT / "docs/development/e2e.md").read_text()
    assert [text for text in MATRIX if f"| `{text}` |" not in page] == []


def test_the_matrix_runs_to_its_end_and_says_which_cluster_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def run(command: tuple[str, ...], *, env: dict[str, str], check: bool) -> subprocess.CompletedProcess[bytes]:
        asked.append(env[VARIABLE])
        assert command[-3:] == ("-m", "every_version", "-x")
        return subprocess.CompletedProcess(command, returncode=int(env[VARIABLE] == "containerd=1.7"))

    monkeypatch.setattr(matrix, "require_cluster_machine", lambda: None)
    monkeypatch.setattr(matrix, "build_programs", lambda versions, say: None)
    monkeypatch.setattr("subprocess.run", run)
    assert matrix.main(["-x"]) == 1
    assert asked == list(MATRIX)
    told = capsys.readouterr().err
    assert f"passed                   {OLDEST}\n" in told
    assert "failed with status 1     containerd=1.7\n" in told


def test_a_machine_that_cannot_run_the_matrix_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert matrix.main([]) == 4
    assert "the real cluster cannot run here" in capsys.readouterr().err
