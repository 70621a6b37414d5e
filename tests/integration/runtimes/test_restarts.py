"""A running containerd 2 under a real systemd: a change that does not work is taken back, one that works stays.

Nothing here is a stand-in but the reason why a start fails.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.layout import CHECKOUT, choose_free_ports
from tests.integration.runtimes.machine import CONTAINERD, CONTAINERD_CONFIG, SOCKET, Machine, running_machine
from tests.support.systemd import find_obstacle

CONFIG = """# ours, do not reformat
version = 3
[plugins.'io.containerd.cri.v1.runtime'] # the runtime's half
  enable_cdi = false
  restrict_oom_score_adj = true
"""
DROP_IN = "/etc/containerd/conf.d/99-nodeagent.toml"
REFUSES = "ExecStartPre=/bin/sh -c '! grep -qr \"enable_cdi = true\" /etc/containerd'"
READS_ELSEWHERE = "BindReadOnlyPaths=/etc/elsewhere:/etc/containerd"
PATIENCE_SECONDS = 30.0


@pytest.fixture
def machine() -> Iterator[Machine]:
    assert find_obstacle() == ""
    with tempfile.TemporaryDirectory(prefix="na") as directory, running_machine(Path(directory)) as machine:
        yield machine


def read_pid(machine: Machine) -> str:
    return machine.systemd.run("systemctl", "show", "--property=MainPID", "--value", CONTAINERD).strip()


def crictl(machine: Machine, *words: str) -> str:
    """What the running daemon says; nothing while it is being restarted."""
    command = (str(machine.programs / "crictl"), "--runtime-endpoint", f"unix://{SOCKET}", *words)
    return machine.systemd.call(*command).stdout


def is_cdi_in_force(machine: Machine) -> bool:
    return '"enableCDI": true' in crictl(machine, "info")


def read_config(machine: Machine) -> str:
    return machine.systemd.path(CONTAINERD_CONFIG).read_text()


def test_a_change_that_works_is_in_force(machine: Machine) -> None:
    """Only our own key in a file of its own, one line in the main file, and back to the byte."""
    machine.install_containerd(machine.programs, CONFIG)
    before = read_pid(machine)
    assert not is_cdi_in_force(machine)
    done = machine.nodeagent("runtime", "configure", "--restart")
    assert done.returncode == 0, done.stderr
    assert is_cdi_in_force(machine)
    assert read_pid(machine) != before
    lines = set(read_config(machine).splitlines()) - set(CONFIG.splitlines())
    assert lines == {'imports = ["/etc/containerd/conf.d/*.toml"]'}
    assert "the runtime's half" in read_config(machine)
    again = machine.nodeagent("runtime", "configure", "--restart")
    assert (again.returncode, again.stdout) == (0, "nothing to write\n")
    assert machine.nodeagent("runtime", "unconfigure").returncode == 0
    assert read_config(machine) == CONFIG
    assert not machine.systemd.path(DROP_IN).exists()


@pytest.mark.parametrize(
    ("more", "reason"),
    [(REFUSES, "`systemctl restart containerd.service` failed"), (READS_ELSEWHERE, "the setting is not in force")],
    ids=["does not start", "reads another file"],
)
def test_a_change_that_does_not_work_is_rolled_back(machine: Machine, more: str, reason: str) -> None:
    """The files are as before to the byte, and containerd runs with them."""
    machine.systemd.write("/etc/elsewhere/config.toml", CONFIG)
    machine.install_containerd(machine.programs, CONFIG, more=more)
    before = read_pid(machine)
    flags = ("--restart", "--set", "runtime.restart_timeout_seconds=3")
    done = machine.nodeagent("runtime", "configure", *flags)
    assert done.returncode == 2
    assert reason in done.stderr
    assert read_config(machine) == CONFIG
    assert not machine.systemd.path(DROP_IN).exists()
    assert machine.systemd.run("systemctl", "is-active", CONTAINERD) == "active\n"
    assert read_pid(machine) != before
    assert "RuntimeName:  containerd" in crictl(machine, "version")
    assert not is_cdi_in_force(machine)


def test_the_agent_keeps_the_setting_in_force_against_another_writer(machine: Machine) -> None:
    """Managed and restarted by the agent itself; what another program undoes is put back while nobody looks."""
    machine.install_containerd(machine.programs, CONFIG)
    port = choose_free_ports(1)[0]
    settings = (
        "gpus.source=simulated:t4",
        "runtime.manage=true",
        "runtime.restart=now",
        f"http.listen=127.0.0.1:{port}",
    )
    flags = " ".join(f"--set {setting}" for setting in settings)
    machine.write_unit("agent.service", f"{CHECKOUT}/.venv/bin/python -m nodeagent run {flags}", "/usr/bin")
    machine.systemd.run("systemctl", "start", "--no-block", "agent.service")
    wait_in_force(machine)
    drop_in = machine.systemd.path(DROP_IN)
    written = drop_in.read_text()
    drop_in.write_text(written.replace("true", "false"))
    wait_in_force(machine)
    assert drop_in.read_text() == written
    machine.systemd.run("systemctl", "stop", "agent.service")
    assert is_cdi_in_force(machine)


def wait_in_force(machine: Machine) -> None:
    """Wait until the file says so and the daemon does so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    place = machine.systemd.path(DROP_IN)
    while not (place.exists() and "enable_cdi = true" in place.read_text() and is_cdi_in_force(machine)):
        assert time.monotonic() < deadline, machine.systemd.read_journal("agent.service")
        time.sleep(0.2)
