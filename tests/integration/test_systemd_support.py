"""The systemd that scenarios run is a real one, and the machine neither feels it nor is seen by it."""

import os
import sys
from pathlib import Path

from tests.integration.cluster.cgroups import read_hierarchies
from tests.support.programs.systemd import PYTHON, find_obstacle, running_systemd


def test_a_real_systemd_runs_units_and_leaves_nothing(tmp_path: Path) -> None:
    """It starts a service of ours by its bus, reloads, logs to its journal; then its processes and cgroups are gone."""
    assert find_obstacle() == ""
    root, shared = tmp_path / "root", tmp_path / "shared"
    root.mkdir()
    shared.mkdir()
    with running_systemd(root, share=(shared, PYTHON)) as systemd:
        systemd.write(
            "/etc/systemd/system/says.service",
            f"[Service]\nType=oneshot\nExecStart={sys._base_executable} -c \"print('hello from a unit')\"\n"  # type: ignore[attr-defined]  # no public name
            f"ExecStart=/bin/sh -c 'echo $PPID >{shared}/said'\n",
        )
        systemd.run("systemctl", "daemon-reload")
        systemd.run("systemctl", "start", "says.service")
        assert "hello from a unit" in systemd.read_journal("says.service")
        assert (shared / "said").read_text() == "1\n"
        assert systemd.call("sysctl", "--write", "vm.swappiness=1").returncode != 0
        assert not systemd.path(str(Path(__file__))).exists()
        pid = systemd.pid
    assert not Path(f"/proc/{pid}").exists()
    assert not list(root.iterdir())
    assert not [path for place in read_hierarchies() for path in place.glob(f"nodeagent-systemd-{os.getpid()}*")]
