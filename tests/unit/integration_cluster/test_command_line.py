"""The command line and the lock, on a machine without a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster.__main__ import main
from tests.integration.cluster.errors import ClusterBusy, NotUp
from tests.integration.cluster.layout import CHECKOUT, Layout
from tests.integration.cluster.lock import hold, is_same_file
from tests.integration.cluster.namespace import join_namespace

HOLDER = """
import sys, pathlib
from tests.integration.cluster.layout import Layout
from tests.integration.cluster.lock import hold, is_same_file
from tests.integration.cluster.namespace import join_namespace
with hold(Layout(pathlib.Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(short_dir: Path) -> Path:
    """A short scratch directory's name that nothing uses."""
    return short_dir / "place"


def test_status_without_a_cluster_says_so(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 3, in words and as JSON."""
    assert main(["status", "--root", str(root)]) == 3
    assert capsys.readouterr().out == "no cluster runs\n"
    assert main(["status", "--json", "--root", str(root)]) == 3
    assert json.loads(capsys.readouterr().out) == {"running": False, "leftovers": []}


def test_an_environment_without_a_cluster_is_an_error_when_evaluated(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`eval` of the answer tells the person what to do instead of setting nothing silently."""
    assert main(["env", "--root", str(root)]) == 3
    assert capsys.readouterr().out.startswith("echo 'no cluster runs")


def test_a_missing_requirement_is_one_line_and_status_4(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing is installed, nothing is started, and each missing thing is named."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["up", "--root", str(root)]) == 4
    output = capsys.readouterr()
    assert output.err.startswith("the real cluster cannot run here: ")
    assert "Go (" in output.err
    assert output.err.count("\n") == 1
    assert not root.exists()


def test_a_long_root_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A scratch directory without room for sockets is an error of the person, not of containerd later."""
    assert main(["status", "--root", "/" + "x" * 50]) == 1
    assert "keep it within 40 bytes" in capsys.readouterr().err


def test_the_help_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Every command is shown in use."""
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(f"tests.integration.cluster {command}" in text for command in ("build", "up", "env", "status", "down"))


def test_a_held_cluster_is_refused_until_its_holder_dies(root: Path) -> None:
    """The second holder is told who has it; a killed holder's lock is free at once."""
    command = (sys.executable, "-c", HOLDER, str(root))
    layout = Layout(root)
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ClusterBusy, match=f"in use by process {holder.pid}"), hold(layout):
            raise AssertionError("the lock was given twice")
        holder.kill()
        holder.wait()
        with hold(layout):
            assert layout.lock_file.exists()
        assert not layout.lock_file.exists()


def test_a_lock_whose_file_was_removed_is_worth_nothing(root: Path) -> None:
    """Who locks a file that its last holder has just removed notices, and locks the new one."""
    root.touch()
    with root.open() as opened:
        assert is_same_file(opened, root)
        root.unlink()
        assert not is_same_file(opened, root)
        root.touch()
        assert not is_same_file(opened, root)


def test_nothing_is_started_in_a_cluster_that_is_not_up(root: Path) -> None:
    """Without its namespace a process would run, and mount, on the machine itself; so it does not start."""
    with pytest.raises(NotUp, match="no cluster is up"):
        join_namespace(Layout(root), ("true",))
