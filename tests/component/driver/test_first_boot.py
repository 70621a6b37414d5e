"""The agent at the first boot of a node: headers are missing, are installed, and the module is loaded as configured."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.programs.agent_process import AgentProcess, run_command, running_agent
from tests.unit.edge.host.tree import HostTree

pytestmark = pytest.mark.long

KERNEL = "6.8.0-50-generic"
HEADERS = f"usr/src/linux-headers-{KERNEL}"


@pytest.fixture
def node(short_dir: Path) -> HostTree:
    """A host with a GPU and the driver's sources in DKMS; the kernel was upgraded, its headers were not."""
    host = HostTree(short_dir / "host")
    host.add_function("0000:1b:00.0")
    host.write("proc/sys/kernel/osrelease", f"{KERNEL}\n")
    host.write("proc/sys/kernel/modprobe", "/sbin/modprobe\n")
    host.write(f"lib/modules/{KERNEL}/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
    host.link(f"lib/modules/{KERNEL}/build", f"/{HEADERS}")
    host.write("var/lib/dkms/nvidia/580.65.06/source/dkms.conf")
    return host


def build_module(host: HostTree) -> None:
    """What `dkms autoinstall` does once the headers are there."""
    host.write(f"{HEADERS}/Makefile")
    host.write(
        f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko.zst: x\nupdates/dkms/nvidia-uvm.ko.zst: x\n"
    )


def list_sets(host: HostTree) -> list[str]:
    settings = {
        "node.host_root": host.root,
        "node.proc_dir": host.proc,
        "node.sys_dir": host.sys,
        "health.watch_kernel_log": "false",
    }
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@contextmanager
def running(host: HostTree, *words: str) -> Iterator[AgentProcess]:
    """The agent, for which a stand-in of chroot runs the host's modprobe: it says what it was asked, and loads."""
    programs = host.root.parent / "programs"
    programs.mkdir()
    module, memory = host.sys / "module/nvidia", host.sys / "module/nvidia_uvm"
    script = f'#!/bin/sh\necho "$@" >> {programs}/asked\nmkdir -p {module} {memory}\necho 1 > {module}/refcnt\n'
    (programs / "chroot").write_text(script)
    (programs / "chroot").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    sets = (*list_sets(host), "--set", "driver.revalidate_seconds=1", *words)
    with running_agent(host.root.parent, *sets, variables=path) as agent:
        yield agent


def list_files(host: HostTree) -> set[Path]:
    return {path for path in host.root.rglob("*") if not path.is_dir()}


def test_missing_headers_are_told_and_nothing_is_touched(node: HostTree) -> None:
    """Status and doctor say it in a line with the remedy; unless configured, no module is loaded either."""
    before = list_files(node)
    with running(node) as agent:
        agent.wait_for("/api/v1/conditions", "driver-headers-missing")
        status = run_command(agent.directory, "status", "--set", f"node.run_dir={agent.directory / 'run'}").stdout
        assert "the running kernel's headers are missing" in status
        doctor = run_command(agent.directory, "doctor", *list_sets(node)).stdout
        for words in (f"/lib/modules/{KERNEL}/build leads nowhere", "linux-headers-$(uname -r)"):
            assert words in status
            assert words in doctor
        build_module(node)
        agent.wait_for("/api/v1/conditions", "driver-not-loaded")
        agent.wait_for("/api/v1/driver", "has updates/dkms/nvidia.ko.zst and has not loaded it")
    assert not (node.root.parent / "programs/asked").exists()
    assert {path.relative_to(node.root) for path in list_files(node) - before} == {Path(HEADERS) / "Makefile"}


def test_the_module_is_loaded_once_it_is_built_and_the_audit_log_has_it(node: HostTree) -> None:
    """One call, in the host's root, by the program that the kernel names."""
    with running(node, "--set", "driver.load_modules=true") as agent:
        agent.wait_for("/api/v1/conditions", "driver-headers-missing")
        build_module(node)
        agent.wait_for("/api/v1/conditions", "driver-library-missing")
        audit = run_command(
            agent.directory, "audit", "--of", "module", "--set", f"node.state_dir={agent.directory / 'state'}"
        ).stdout
    asked = (node.root.parent / "programs/asked").read_text()
    assert asked == f"{node.root} /sbin/modprobe -a -b nvidia nvidia-uvm\n"
    assert "load" in audit
    assert "nvidia nvidia-uvm" in audit
