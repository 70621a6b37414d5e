"""A whole agent gives devices of configured classes: on a node without GPU, to a kubelet that keeps the protocol."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.cli.frame.exit_codes import ExitCode
from tests.support.programs.agent_process import AgentProcess, run_command, running_agent, running_simulation

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")

CARD = "example.com/card"


@contextmanager
def kubelet(directory: Path) -> Iterator[None]:
    command = (sys.executable, "-m", "nodeagent_sim.kubelet", "--dir", str(directory / "kubelet"))
    process = subprocess.Popen((*command, "--resource", CARD, "--pods", "1"))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def write_settings(directory: Path) -> Path:
    dev, sys_dir, proc = directory / "dev", directory / "sys", directory / "proc"
    dev.mkdir(exist_ok=True)
    if not proc.exists():
        proc.mkdir()  # with all that is asked there, but for a driver that this machine may have
        for name in ("sys", "self", "mounts", "modules", "uptime", "stat", "meminfo", "cpuinfo"):
            (proc / name).symlink_to(f"/proc/{name}")
    (sys_dir / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for name, minor in (("card3", 3), ("card7", 5)):
        if not (dev / name).exists():
            os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    settings = {
        "devices": {"classes": [{"resource": CARD, "nodes": [f"{dev}/card*"], "renumber": True}]},
        "node": {"sys_dir": str(sys_dir), "proc_dir": str(proc)},
        "driver": {"root": str(directory)},
        "cdi": {"dir": str(directory / "cdi")},
        "health": {"clean_polls": 1},
    }
    file = directory / "config.yaml"
    file.write_text(json.dumps(settings))
    return file


@pytest.mark.long
def test_a_node_without_gpu_gives_its_devices(short_dir: Path) -> None:
    """Ready, no condition, no word of a driver; a device that goes while held is named and comes back."""
    with kubelet(short_dir):
        file = write_settings(short_dir)
        with running_agent(short_dir, "--config", str(file)) as agent:
            agent.wait_for("/readyz", "all is well: 2 devices of the configured classes, and no GPU")
            assert agent.get("/readyz")[0] == 200
            assert agent.get_json("/api/v1/conditions") == []
            taken = find_held(agent)
            (short_dir / "dev" / taken).unlink()
            agent.wait_for("/api/v1/conditions", "device-gone")
            asking = ("--config", str(file), "--set", f"http.listen={agent.url.split('/')[2]}")
            shown = run_command(short_dir, "devices", *asking)
            assert shown.returncode == ExitCode.UNWELL, shown.stderr
            assert "gone" in shown.stdout
            os.mknod(short_dir / "dev" / taken, stat.S_IFCHR | 0o666, os.makedev(1, 3))
            agent.wait_gone("/api/v1/conditions", "device-")
            assert "nodeagent_device_healthy" in agent.get("/metrics")[1]
            assert "NVML" not in agent.get("/api/v1/events?follow=false")[1]
            assert agent.stop() == 0


def find_held(agent: AgentProcess) -> str:
    """The last part of the path of a device that a pod has."""
    body = agent.wait_until("/api/v1/devices", lambda text: '"holders":["' in text, "nobody has a device")
    (one,) = json.loads(body)
    held = [record for record in one["devices"] if record["holders"]]
    return str(held[0]["device"]["name"]).rpartition("/")[2]


def test_a_gpu_that_is_expected_is_missed(short_dir: Path) -> None:
    file = write_settings(short_dir)
    with running_agent(short_dir, "--config", str(file), "--set", "gpus.expected=1") as agent:
        agent.wait_for("/api/v1/conditions", "driver-no-hardware")
        assert agent.get("/readyz")[0] == 503


@pytest.mark.long
def test_the_component_does_not_exist_where_no_class_is_configured(short_dir: Path) -> None:
    """The API has neither the component nor a device."""
    with running_simulation(short_dir) as agent:
        agent.wait_for("/readyz", "ready")
        names = [one["name"] for one in agent.get_json("/api/v1/components")]
        assert "devices" not in names
        assert agent.get_json("/api/v1/devices") == []
