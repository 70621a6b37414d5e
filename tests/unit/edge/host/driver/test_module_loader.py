"""Loading and unloading kernel modules: by a modprobe that writes down what it was asked."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.log.audit import Change, keeping
from nodeagent.edge.host.driver.module_loader import HostModules
from nodeagent.model.driver import LoadedModule
from tests.support.threads import StuckThread
from tests.unit.edge.host.tree import HostTree

MODULES = ("nvidia", "nvidia-uvm")


def name_program(host: HostTree, script: str) -> Path:
    """A program in the place that the kernel names as the one by which it loads modules."""
    program = host.write("sbin/modprobe", f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    host.write("proc/sys/kernel/modprobe", f"{program}\n")
    return program


async def load(
    host: HostTree, *, host_root: Path = Path("/"), timeout_seconds: float = 20.0
) -> tuple[str, list[Change]]:
    """What stood in the way, and what the audit log has of it."""
    worker, changes = WorkerThread("kernel modules"), list[Change]()
    modules = HostModules(worker, proc_root=host.proc, host_root=host_root, timeout_seconds=timeout_seconds)
    try:
        with keeping(changes.append):
            return await modules.load(MODULES), changes
    finally:
        worker.close()


async def test_the_hosts_own_program_loads_both_and_keeps_to_the_blacklist(host: HostTree) -> None:
    """The change is in the audit log."""
    name_program(host, f'echo "$@" > {host.root}/asked')
    problem, changes = await load(host)
    assert problem == ""
    assert (host.root / "asked").read_text() == "-a -b nvidia nvidia-uvm\n"
    assert [(each.kind, each.name, each.action, each.outcome) for each in changes] == [
        ("module", "nvidia nvidia-uvm", "load", "done")
    ]


async def test_the_agents_secrets_are_not_modprobes(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEAGENT_TOKEN", "secret")
    name_program(host, f'echo "[$NODEAGENT_TOKEN]" > {host.root}/asked')
    await load(host)
    assert (host.root / "asked").read_text() == "[]\n"


async def test_what_modprobe_says_is_told(host: HostTree) -> None:
    name_program(host, "echo \"modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\" >&2; exit 1")
    problem, changes = await load(host)
    assert problem == "modprobe ended with 1: modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    assert [problem in each.outcome for each in changes] == [True]


async def test_a_modprobe_that_hangs_is_ended(host: HostTree) -> None:
    """Its children too: what reads the pipe would wait for them."""
    name_program(host, "sleep 600")
    assert (await load(host, timeout_seconds=0.05))[0] == "modprobe did not end within 0.05 s"


async def test_a_modprobe_that_cannot_even_be_ended_is_left_behind(host: HostTree) -> None:
    """The driver's start may hang in the kernel, where no signal comes through."""
    modules = HostModules(StuckThread("kernel modules"), proc_root=host.proc)
    assert "loading kernel modules" in await modules.load(MODULES)
    assert (await modules.unload(MODULES)).code is None


@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_a_kernel_that_is_to_load_no_modules_is_left_alone(host: HostTree, content: str | None) -> None:
    """An empty `kernel.modprobe` is somebody's decision."""
    if content is not None:
        host.write("proc/sys/kernel/modprobe", content)
    problem, changes = await load(host)
    assert problem == "the kernel is to load no modules, kernel.modprobe is empty"
    assert [each.outcome for each in changes] != ["done"]


async def test_from_a_container_the_hosts_program_runs_in_the_hosts_root(
    host: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the host's own name for it; here a chroot stands in that says what it was asked."""
    name_program(host, "exit 1")
    host.write("proc/sys/kernel/modprobe", "/sbin/modprobe\n")
    stand_in = host.write("bin/chroot", f'#!/bin/sh\necho "$@" > {host.root}/asked\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    assert (await load(host, host_root=host.root))[0] == ""
    assert (host.root / "asked").read_text() == f"{host.root} /sbin/modprobe -a -b nvidia nvidia-uvm\n"


@pytest.fixture
async def modules(host: HostTree) -> AsyncIterator[HostModules]:
    worker = WorkerThread("kernel modules")
    yield HostModules(worker, proc_root=host.proc, sys_root=host.sys)
    worker.close()


async def test_the_loaded_modules_are_read_with_their_holders(host: HostTree, modules: HostModules) -> None:
    """A module that is on its way has no count yet; one of another maker is not read."""
    host.write("sys/module/nvidia/refcnt", "3\n")
    for holder in ("nvidia_fs", "nvidia_uvm"):
        host.link(f"sys/module/nvidia/holders/{holder}", f"../../{holder}")
    (host.sys / "module/nvidia_uvm/holders").mkdir(parents=True)
    host.write("sys/module/ext4/refcnt", "1\n")
    assert await modules.read_loaded() == (
        LoadedModule(name="nvidia_uvm", references=None),
        LoadedModule(name="nvidia", references=3, holders=("nvidia_fs", "nvidia_uvm")),
    )


async def test_modules_are_unloaded_without_force_in_the_order_asked_for(host: HostTree, modules: HostModules) -> None:
    name_program(host, f'echo "$@" > {host.root}/asked')
    changes = list[Change]()
    with keeping(changes.append):
        assert (await modules.unload(("nvidia_uvm", "nvidia"))).code == 0
    assert (host.root / "asked").read_text() == "-r nvidia_uvm nvidia\n"
    assert [(each.name, each.action, each.outcome) for each in changes] == [("nvidia_uvm nvidia", "unload", "done")]


async def test_a_removal_that_is_refused_is_an_answer(host: HostTree, modules: HostModules) -> None:
    """The audit log has the refusal, not a removal."""
    name_program(host, 'echo "modprobe: FATAL: Module nvidia is in use."; exit 1')
    changes = list[Change]()
    with keeping(changes.append):
        answer = await modules.unload(("nvidia",))
    assert answer.describe() == "exit code 1: modprobe: FATAL: Module nvidia is in use."
    assert "is in use" in changes[0].outcome
    host.write("proc/sys/kernel/modprobe", "")
    assert "kernel.modprobe is empty" in (await modules.unload(("nvidia",))).said
