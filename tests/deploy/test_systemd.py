"""The systemd unit is one that systemd accepts, that may do little, and under which the agent still works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs.agent_process import command_environment

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd/nodeagent.service"
EXPOSURE_MAX = 4.0

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read_addition(page: str) -> str:
    """What a page has people add to the unit."""
    found = re.search(r"^```ini\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def list_values(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


@needs_systemd
def test_unit_is_understood_to_the_last_key(tmp_path: Path) -> None:
    """Systemd only warns of keys it does not know and starts the unit without them: a warning is a failure here."""
    program = tmp_path / "nodeagent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "nodeagent.service"
    unit.write_text(re.sub(r"^(Exec\w+)=nodeagent", rf"\1={program}", UNIT.read_text(), flags=re.MULTILINE))
    done = analyze("verify", "--man=no", "--recursive-errors=one", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("page", ["mps.md", "driver.md"])
def test_what_a_page_adds_is_understood_too(page: str, tmp_path: Path) -> None:
    """As people copy it from the page, over the unit; what it adds is what systemd then says of the whole."""
    program, unit = tmp_path / "nodeagent", tmp_path / "nodeagent.service"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text(re.sub(r"^(Exec\w+)=nodeagent", rf"\1={program}", UNIT.read_text(), flags=re.MULTILINE))
    added = tmp_path / "nodeagent.service.d"
    added.mkdir()
    (added / "override.conf").write_text(read_addition(page))
    done = analyze("verify", "--man=no", "--recursive-errors=one", str(unit))
    assert (done.returncode, done.stderr) == (0, "")
    (added / "override.conf").write_text("[Service]\nKillModes=process\n")
    assert "KillModes" in analyze("verify", "--man=no", "--recursive-errors=one", str(unit)).stderr, "it was read"


@needs_systemd
def test_unit_is_not_exposed() -> None:
    """What a broken agent could reach stays within the limit that systemd computes."""
    done = analyze("security", "--offline=true", str(UNIT))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX


def test_every_writable_path_of_the_unit_may_be_absent_or_is_made_at_boot() -> None:
    """A missing path without a leading dash keeps the unit from starting."""
    made = [
        line.split()[1]
        for line in (ROOT / "systemd/nodeagent.tmpfiles.conf").read_text().splitlines()
        if line[:1] == "d"
    ]
    needed = [path for path in list_values("ReadWritePaths") if not path.startswith("-")]
    assert needed
    assert set(needed) <= set(made)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_agent_runs_with_the_capabilities_of_the_unit_alone(short_dir: Path) -> None:
    """Without any other capability the agent starts, serves its GPUs to a kubelet, and stops in order."""
    kept = [name.removeprefix("CAP_").lower() for name in " ".join(list_values("CapabilityBoundingSet")).split()]
    bounds = ",".join(["-all", *(f"+{name}" for name in kept)])
    agent = [sys.executable, "-m", "nodeagent", "simulate", "--for", "2s", "--set", "http.listen=127.0.0.1:0"]
    command = ["setpriv", f"--bounding-set={bounds}", "--inh-caps=-all", "--no-new-privs", *agent]
    environment = command_environment(short_dir)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert '"level": "error"' not in done.stderr
