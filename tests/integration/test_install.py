"""Installed as the guide says on a fresh Debian under systemd: it works, is small, is well looked after, and goes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.integration.machine.machine import Machine, fresh_machine
from tests.support.texts.markdown import Block, find_block

PAGE: Final = "docs/installation.md"
INSTALLED_LIMIT_MB: Final = 100
WAYS: Final = {
    "venv": ("/opt/nodeagent", find_block(PAGE, "One machine"), (find_block(PAGE, "Leave", 2),)),
    "pipx": ("/opt/pipx/venvs/nodeagent", find_block(PAGE, "With pipx"), (find_block(PAGE, "Leave", 3),)),
    "deb": ("/usr/lib/nodeagent", find_block(PAGE, "As a Debian package"), (find_block(PAGE, "Leave", 4),)),
}
pytestmark = pytest.mark.timeout(400)  # half a gigabyte is unpacked and compiled, on whatever machine this is
UNHURRIED = {"nodeagent status"}
"""A second after the start it may say that it is starting, and its exit code that."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with fresh_machine(tmp_path) as made:
        yield made


def follow(machine: Machine, *blocks: Block) -> None:
    """Type what the guide says."""
    for command in (command for block in blocks for command in block.commands):
        if command in UNHURRIED:
            machine.call(command)
        else:
            machine.run(command)


@pytest.mark.parametrize("way", WAYS)
def test_a_machine_is_as_before_once_the_agent_has_left(machine: Machine, way: str) -> None:
    """Each documented way in: eight GPUs offered, the simulation runs, 100 MB at most; the way out leaves no file."""
    place, install, leave = WAYS[way]
    if way == "deb":
        machine.run("sh deploy/deb.sh dist/nodeagent-*.whl dist")
    before = machine.list_files()
    follow(machine, install)
    machine.wait_ready()
    assert machine.count_offered() == 8
    machine.run("nodeagent simulate --for 2s --set http.listen=127.0.0.1:0")
    assert int(machine.run(f"du -sm {place}").split()[0]) <= INSTALLED_LIMIT_MB
    follow(machine, find_block(PAGE, "Leave"), *leave)
    after = machine.list_files()
    assert {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {}


def test_the_journal_stays_where_it_is_asked_for(machine: Machine) -> None:
    """`--keep-state` leaves who held what, for the agent that comes next, and nothing else."""
    follow(machine, WAYS["venv"][1])
    machine.wait_ready()
    machine.run("systemctl stop nodeagent.service")
    machine.run("nodeagent uninstall --keep-state")
    assert "allocations.journal" in machine.run("ls /var/lib/nodeagent")
    assert machine.call("ls -A /run/cdi").stdout.strip() == ""
    machine.run("nodeagent uninstall")
    assert machine.call("ls /var/lib/nodeagent").returncode != 0


def test_systemd_looks_after_the_agent(machine: Machine) -> None:
    """Started means ready to be asked; a hang, a crash, a reload and a stop each end as the unit says."""
    follow(machine, WAYS["venv"][1])
    machine.wait_ready()
    assert machine.show("ActiveState") == "active"
    assert machine.show("Type") == "notify"
    assert machine.show("StatusText") != ""

    machine.run('sed -i \'s/^{/{"log": {"level": "debug"}, /\' /etc/nodeagent/config.yaml')
    machine.run("systemctl reload nodeagent")
    assert "configuration_reloaded" in machine.systemd.read_journal("nodeagent.service")
    assert machine.show("NRestarts") == "0"

    machine.run("systemctl kill --signal=KILL --kill-whom=main nodeagent")
    machine.wait("the agent to be back after a crash", lambda: machine.show("NRestarts") == "1")
    machine.wait_ready()

    machine.run("mkdir -p /run/systemd/system/nodeagent.service.d")
    machine.systemd.write("/run/systemd/system/nodeagent.service.d/short.conf", "[Service]\nWatchdogSec=2\n")
    machine.run("systemctl daemon-reload && systemctl restart nodeagent")
    machine.wait_ready()
    restarts = int(machine.show("NRestarts"))
    machine.run("systemctl kill --signal=STOP --kill-whom=main nodeagent")
    machine.wait("the watchdog to bite", lambda: int(machine.show("NRestarts")) > restarts)
    machine.wait_ready()
    assert "Watchdog timeout" in machine.systemd.read_journal("nodeagent.service")

    machine.run("systemctl stop nodeagent")
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")
    assert "nvidia" not in machine.run("ls /var/lib/kubelet/device-plugins")


def test_the_unit_confines_the_agent(machine: Machine) -> None:
    """What the unit takes away is gone in the running process, and eight GPUs are offered all the same."""
    follow(machine, WAYS["venv"][1])
    machine.wait_ready()
    pid = machine.show("MainPID")
    status = dict(line.split(":\t", 1) for line in machine.run(f"cat /proc/{pid}/status").splitlines() if ":\t" in line)
    assert int(status["CapBnd"], 16).bit_count() == 3
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    inside = f"nsenter --target {pid} --mount --"
    for place in ("/usr/bin", "/etc", "/opt/nodeagent", "/var/lib"):
        done = machine.call(f"{inside} touch {place}/x")
        assert "Read-only file system" in done.stderr, place
    for place in ("/var/lib/nodeagent", "/run/nodeagent", "/run/cdi", "/var/lib/kubelet/device-plugins"):
        machine.run(f"{inside} sh -c 'touch {place}/x && rm {place}/x'")
    assert machine.run(f"{inside} ls -A /root").strip() == ""
    assert machine.count_offered() == 8
