"""What `systemctl daemon-reload` does to running containers, on a real systemd: it writes their device lists anew.

What systemd was not told of is gone then, and a GPU that worked fails with "Operation not permitted". It knows what the
runtime hands it from the OCI specification, where CDI puts the nodes; runc 1.1.3 to 1.1.6 hands on only numbers that
have a link in /dev/char, which NVIDIA's driver does not make and the agent does.
"""

import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.layout import CHECKOUT
from tests.integration.runtimes.machine import Machine, running_machine
from tests.integration.runtimes.support import run
from tests.support.programs.systemd import find_obstacle

SCOPE = "gpu-one.scope"
NODES = ("nvidia0", "nvidiactl", "nvidia-uvm")
LINKS = ("195:0", "195:255", "511:0", "511:1")
PASSES, DENIED = "No such device or address", "Operation not permitted"
ASKED_AT_MOST = 5
NEEDS_LINKS = ((1, 1, 3), (1, 1, 6))
"""First and last release of runc that leaves out what has no link."""


@pytest.fixture
def machine() -> Iterator[Machine]:
    assert find_obstacle() == ""
    with tempfile.TemporaryDirectory(prefix="na") as directory, running_machine(Path(directory)) as machine:
        machine.install_containerd(machine.programs, "version = 3\n")
        yield machine


def generate(machine: Machine) -> None:
    """The specification that the agent writes for this driver, where runtimes on this machine look."""
    place = machine.shared / "nvidia.json"
    flags = ("--gpus", "simulated:t4", "--set", f"driver.root={machine.driver}", "-o", str(place))
    subprocess.run(
        [sys.executable, "-m", "nodeagent", "cdi", "generate", *flags],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    machine.systemd.write("/run/cdi/nvidia.json", place.read_text())


def start_container(machine: Machine, *flags: str) -> None:
    """A container in a scope of systemd's, as a kubelet with the systemd cgroup driver has them made."""
    group = ("--runc-systemd-cgroup", "--cgroup", "machine.slice:gpu:one")
    machine.ctr("run", "--detach", "--rootfs", *group, *flags, str(machine.image), "one", "/bin/sleep", "1000")


def try_open(machine: Machine, node: str) -> str:
    """What a process in the container hears when it opens a node.

    On a busy machine `ctr` may end before it has read what the process said, so silence is no answer.
    """
    for _ in range(ASKED_AT_MOST):
        words = ("task", "exec", "--exec-id", secrets.token_hex(8), "one", "/bin/sh", "-c")
        said = machine.ctr(*words, f"(: </dev/{node} && echo opened) 2>&1; true").strip()
        if said:
            return said.rpartition(": ")[2]
    return "nothing"


def reload(machine: Machine) -> None:
    """Have systemd read its units anew, and wait until it has written the scope's device list again."""
    machine.systemd.run("systemctl", "daemon-reload")
    # A question that is answered only after the work that the reload has queued.
    machine.systemd.run("systemctl", "set-property", "--runtime", SCOPE, "CPUWeight=200")


def test_with_our_specification_and_links_access_is_kept(machine: Machine) -> None:
    """Nodes by CDI and links by the agent: systemd knows every node of the GPU, before and after a reload."""
    assert machine.device_nodes().repair().failed == ()
    generate(machine)
    start_container(machine, "--device", "nvidia.com/gpu=0")
    assert {node: try_open(machine, node) for node in NODES} == dict.fromkeys(NODES, PASSES)
    allowed = machine.systemd.run("systemctl", "show", "--property=DeviceAllow", SCOPE)
    assert [link for link in LINKS if f"/dev/char/{link} rwm" not in allowed] == []
    reload(machine)
    assert {node: try_open(machine, node) for node in NODES} == dict.fromkeys(NODES, PASSES)


def test_without_links_it_depends_on_the_release_of_runc(machine: Machine) -> None:
    """The very same container without the links: the releases that need them lose the GPU, the others do not."""
    machine.device_nodes().repair()
    for link in LINKS:
        (machine.systemd.path("/dev/char") / link).unlink()
    generate(machine)
    start_container(machine, "--device", "nvidia.com/gpu=0")
    assert try_open(machine, "nvidia0") == PASSES
    reload(machine)
    first, last = NEEDS_LINKS
    assert try_open(machine, "nvidia0") == (DENIED if first <= read_runc_version() <= last else PASSES)


def test_what_was_allowed_behind_systemd_is_lost(machine: Machine) -> None:
    """The classic hook writes into the cgroup itself, which no link mends: hence nodes go into the specification."""
    machine.device_nodes().repair()
    start_container(machine)
    state = machine.ctr(
        "task", "exec", "--exec-id", "mknod", "one", "/bin/busybox", "mknod", "/dev/late", "c", "195", "0"
    )
    assert state == ""
    assert try_open(machine, "late") == DENIED
    group = machine.systemd.run("systemctl", "show", "--property=ControlGroup", "--value", SCOPE).strip()
    allow = machine.systemd.path(f"/sys/fs/cgroup/devices{group}/devices.allow")
    if not allow.exists():
        # Version 2 has no such file: there is no way behind systemd's back, and so nothing to lose.
        return
    allow.write_text("c 195:0 rwm")
    assert try_open(machine, "late") == PASSES
    reload(machine)
    assert try_open(machine, "late") == DENIED


def read_runc_version() -> tuple[int, ...]:
    found = re.search(r"runc version (\d+)\.(\d+)\.(\d+)", run("runc", "--version"))
    assert found is not None
    return tuple(map(int, found.groups()))
