"""The memory for what containers write, mounted by the line of unit and chart: no container fills the disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.chart import needs_helm, pod_of, read_manifest, render_objects

ROOT = Path(__file__).parents[4]
STATE = "/var/lib/nodeagent"
pytestmark = pytest.mark.may_block("nothing here runs on an event loop")

INSIDE = """
import os, sys
import anyio
from pathlib import Path
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.vgpu.layout import USAGE_BYTES
from nodeagent.edge.host.vgpu.fraction_folders import HostFractionFolders

state = Path(sys.argv[1])

async def main():
    worker = WorkerThread("test")
    parts = HostFractionFolders(state / "parts", worker)
    mean, other = [(await parts.write(name, [])).usage for name in ("mean", "other")]
    assert os.stat(mean).st_dev != os.stat(state).st_dev, mean
    free = os.statvfs(state).f_bavail * os.statvfs(state).f_frsize
    file = os.open(mean, os.O_RDWR)
    os.ftruncate(file, 1 << 40)
    at, block = USAGE_BYTES, b"x" * (1 << 20)
    try:
        while at < 1 << 30:
            at += os.pwrite(file, block, at)
    except OSError as error:
        assert error.errno == 28, error
    assert 32 << 20 < at <= 64 << 20, at
    # The other's pages have their place already: it writes everywhere.
    with open(other, "r+b") as neighbour:
        neighbour.write(bytes([1]) * USAGE_BYTES)
    check = await parts.bound_usage()
    assert check.grown == {"mean": 1 << 40} and check.unbounded == (), check
    assert os.fstat(file).st_size == USAGE_BYTES
    for number in range(50):
        await parts.write(f"next-{number}", [])
    for name in await parts.list_names():
        await parts.remove(name)
    assert os.listdir(state / "usage") == [], os.listdir(state / "usage")
    worker.close()
    print("bounded")

anyio.run(main)
"""


UNINSTALL = """
import subprocess, sys
from pathlib import Path
from nodeagent.cli.uninstall.steps import remove_state
from nodeagent.config.schema import Settings
from nodeagent.config.sections.agent import NodeSettings

state = Path(sys.argv[1])
memory, settings = state / "usage", Settings(node=NodeSettings(state_dir=state))

def remove(dry=False):
    return [(each.step.value, each.what, each.detail) for each in remove_state(settings, {}, dry=dry)]

(memory / "parts-a").write_text("")
assert remove()[0] == ("kept", str(memory), "containers have files in it: unmount it when they have ended"), remove()
assert memory.is_mount()
(memory / "parts-a").unlink()
told = remove(dry=True)
assert [step for step, *_ in told] == ["removed"] * 3 and memory.is_mount(), told
told = remove()
assert [step for step, *_ in told] == ["removed"] * 3 and not state.exists(), told
memory.mkdir(parents=True)
subprocess.run(["mount", "-t", "tmpfs", "none", memory], check=True)
with (memory / "opened").open("w") as file:
    (memory / "opened").unlink()
    told = remove()
assert told[0][0] == "failed" and "busy" in told[0][2], told
print("kept rehearsed removed refused")
"""


def read_unit_line() -> str:
    """What the unit runs before the agent."""
    (line,) = [
        line
        for line in (ROOT / "systemd/nodeagent.service").read_text().splitlines()
        if line.startswith("ExecStartPre=")
    ]
    return line.removeprefix("ExecStartPre=-+/bin/sh -c '").removesuffix("'")


def run_mounted(state: Path, program: str) -> subprocess.CompletedProcess[str]:
    """By a Python of its own, in a mount namespace of its own, with what the unit mounts; twice, as after a restart."""
    line = read_unit_line().replace(STATE, str(state))
    script = f'{line} && {line} && exec "$0" -c "$1" "$2"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script, sys.executable, program, str(state)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


needs_mounts = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root mounts")


@needs_mounts
def test_no_container_fills_more_than_the_memory(tmp_path: Path) -> None:
    """Nor keeps another from its own file; once it is cut, files of further containers have their place again."""
    done = run_mounted(tmp_path, INSIDE)
    assert (done.returncode, done.stdout) == (0, "bounded\n"), done.stderr
    assert not (tmp_path / "usage").is_mount()


@needs_mounts
def test_uninstalling_takes_the_memory_away(tmp_path: Path) -> None:
    """Not while containers have files in it, which is said; nor in a rehearsal."""
    done = run_mounted(tmp_path, UNINSTALL)
    assert (done.returncode, done.stdout) == (0, "kept rehearsed removed refused\n"), done.stderr


@needs_helm
def test_the_chart_mounts_it_as_the_unit_does() -> None:
    """Where GPUs are given in parts, and by a container that Kubernetes lets mount something for the host."""
    assert "initContainers" not in pod_of(read_manifest())
    for asked in ("config.fractions.enabled=true", "config.claims.shares=true"):
        (first,) = pod_of(render_objects("--set", asked))["initContainers"]
        assert first["args"] == [read_unit_line()]
        assert first["securityContext"]["privileged"]
        (mount,) = first["volumeMounts"]
        assert (mount["mountPath"], mount["mountPropagation"]) == (STATE, "Bidirectional")
        assert "initContainers" not in pod_of(render_objects("--set", f"{asked},gpuAccess=none"))
