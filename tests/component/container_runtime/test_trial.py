"""Starting a daemon on the side: what comes of it, and that nothing of it is left, whatever it does."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.edge.container_runtime.trial import find_reason, try_out
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import SCRATCH, ConfigFile, ConfigTree, TrialAnswer

CHECKOUT = Path(__file__).resolve().parents[3]

MAIN = "/etc/containerd/config.toml"
TREE = ConfigTree(files=(ConfigFile(path="config.toml", content=f"place = '{SCRATCH}/x'".encode()),))
SERVE = f"""#!{sys.executable}
import asyncio, sys
sys.path.insert(0, "{CHECKOUT}")
from pathlib import Path
from tests.fakes.cri import FakeCri
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
Path(__file__).with_name("seen").write_text(Path(arguments["--config"]).read_text())
Path(__file__).with_name("place").write_text(arguments["--root"])
fake = FakeCri(config={{"enableCDI": True}}, handlers=("", "runc"))
MORE
async def main():
    async with fake.serving(Path(arguments["--address"])):
        await asyncio.Event().wait()
asyncio.run(main())
"""
STUBBORN = """#!/bin/sh
echo "$6" >"$(dirname "$0")/place"
trap "" TERM
sleep 600 &
echo $! >"$(dirname "$0")/child"
echo "level=info msg=hello"
wait; wait
"""
Install = Callable[[str], str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a script in the place of the daemon's program."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def put(script: str) -> str:
        program = tmp_path / "containerd"
        program.write_text(script)
        program.chmod(0o755)
        return str(program)

    return put


def run_trial(program: str, seconds: float = 30.0) -> TrialAnswer:
    return try_out(program, MAIN, TREE, HostPaths(), seconds=seconds)


def test_what_cri_says_is_the_answer(install: Install, tmp_path: Path) -> None:
    """Its files name its own directory, which is gone afterwards."""
    answer = run_trial(install(SERVE.replace("MORE", "")))
    assert answer == TrialAnswer(is_ready=True, handlers=("", "runc"), cdi_enabled=True)
    place = Path((tmp_path / "place").read_text()).parent
    assert (tmp_path / "seen").read_text() == f"place = '{place}/x'"
    assert not place.exists()


def test_a_daemon_that_is_not_ready_says_so(install: Install) -> None:
    """The condition is there, and is not true."""
    more = r'fake.raw_status = b"\n\x10\n\x0e\n\x0cRuntimeReady"'
    answer = run_trial(install(SERVE.replace("MORE", more)))
    assert (answer.is_ready, answer.said) == (False, "its condition RuntimeReady is not true")


def test_a_daemon_without_cri_is_told_by_its_log(install: Install) -> None:
    """The error of the plugin, not what else it said."""
    said = 'level=w msg="failed to load plugin io.containerd.grpc.v1.cri" error="no \\"runc\\""'
    more = f"fake.refuses = True\nprint({said!r}, flush=True)"
    answer = run_trial(install(SERVE.replace("MORE", more)))
    assert (answer.obstacle, answer.said) == ("", 'containerd starts without CRI: no "runc"')


def test_a_daemon_that_ends_is_told_by_its_last_words(install: Install) -> None:
    """As it does over a file that it does not understand."""
    answer = run_trial(install("#!/bin/sh\necho first\necho containerd: bad file\nexit 1\n"))
    assert answer.said == "containerd ends at once: containerd: bad file"


@pytest.mark.long
def test_a_daemon_that_does_not_answer_proves_nothing(install: Install, tmp_path: Path) -> None:
    """It is ended with all that it has started, though it does not want to be."""
    answer = run_trial(install(STUBBORN), seconds=1.0)
    assert (
        answer.obstacle == "a containerd that was started on the side did not answer within 1 s: level=info msg=hello"
    )
    child = Path("/proc") / (tmp_path / "child").read_text().strip() / "stat"
    assert not child.exists() or child.read_text().split()[2] == "Z"
    assert not Path((tmp_path / "place").read_text().strip()).parent.exists()


def test_what_cannot_be_started_is_an_obstacle(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = install("#!/bin/sh\n")
    assert "is not there" in run_trial("/nowhere/containerd").obstacle
    assert "is /usr/bin/python3, not containerd" in run_trial("/usr/bin/python3").obstacle
    assert "is not known, not containerd" in run_trial("").obstacle
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert "No such file" in run_trial(program).obstacle or "make a copy" in run_trial(program).obstacle
    long = tmp_path / ("l" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert "too long a name" in run_trial(program).obstacle
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run_trial(program).obstacle == "only root can start containerd"


def test_a_daemon_that_says_nothing_has_said_nothing() -> None:
    """And the first of several errors is the cause of the others."""
    assert find_reason("\n") == "it says nothing"
    lines = [f'level=w msg="failed to load plugin x.cri.{n}" error="{n}"' for n in range(2)]
    assert find_reason("\n".join([*lines, "last"])) == "0"
