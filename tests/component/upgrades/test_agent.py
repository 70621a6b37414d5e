"""A whole agent upgrades the driver of made-up GPUs: a pod leaves, the agent is killed, and the next agent ends it."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import nodeagent_sim
from tests.component.devices.test_divisible_agent import serve
from tests.support.allocations import GPU
from tests.support.programs.agent_process import AgentProcess, run_command, running_agent

pytestmark = [pytest.mark.long, pytest.mark.may_block("agents are processes of their own here")]

UPGRADES = "/api/v1/upgrades"
PROFILES = Path(nodeagent_sim.__file__).parent / "gpus" / "profiles"
OLD, NEW = "535.261.03", "590.44.01"
INSTALLER = """
import http.client, json, pathlib, socket, sys, time
place, admin, version = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if not (place / "begun").exists():
    (place / "begun").touch()
    while not (place / "killed").exists():
        time.sleep(0.05)
    sys.exit("killed in the middle")
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(admin)
connection.request("POST", "/api/v1/faults", json.dumps({"fault": "driver", "arguments": ["mismatch", version]}))
print(connection.getresponse().read())
"""
"""Installs the libraries of a version on the simulated node; the first one waits until its agent is killed."""


def write_settings(directory: Path, wanted: str) -> Path:
    """The settings of an agent of made-up GPUs that upgrades their driver by the installer."""
    installer = directory / "install.py"
    installer.write_text(INSTALLER)
    command = [sys.executable, str(installer), str(directory), str(directory / "run" / "admin.sock"), NEW]
    profile = directory / "profile.yaml"
    # A job without an allocation would hold the driver, and the made-up GPUs of each agent begin anew.
    profile.write_text(f"{(PROFILES / 't4.yaml').read_text()}jobs: false\n")
    file = directory / "settings.yaml"
    settings = {
        "gpus": {"source": f"simulated:{profile}"},
        "driver": {
            "upgrade": "act",
            "wanted_version": wanted,
            "installed_by": "command",
            "upgrade_command": command,
        },
        "repairs": {"drain": {"wait_seconds": 0}},
        "kubelet": {"pod_resources_poll_seconds": 0.5},
    }
    file.write_text(json.dumps(settings))
    return file


def wait_upgrade(agent: AgentProcess, **wanted: object) -> dict[str, Any]:
    def is_so(body: str) -> bool:
        newest: dict[str, object] = next(iter(json.loads(body)["upgrades"]), {})
        return all(newest.get(key) == value for key, value in wanted.items())

    body = agent.wait_until(UPGRADES, is_so, f"never came to {wanted}")
    return dict(json.loads(body)["upgrades"][0])


def test_an_upgrade_outlives_a_kill_and_ends_proven_and_open(short_dir: Path) -> None:
    file = write_settings(short_dir, OLD)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(short_dir)) as kubelet:
        with running_agent(short_dir, "--config", str(file)) as agent:
            portal.call(kubelet.wait_until, lambda: kubelet.count_free(GPU) > 0)
            portal.call(partial(kubelet.add_pod, "team", "train", {GPU: 1}))
            agent.wait_for("/api/v1/allocations", "train")
            write_settings(short_dir, NEW)
            assert agent.post("/api/v1/reload", {})[0] == 200
            begun = wait_upgrade(agent, phase="drain")
            agent.wait_for("/api/v1/conditions", "team/train: there is no API server that could ask it to leave")
            assert "must leave team/train" in run_command(short_dir, "driver", "plan").stdout
            portal.call(kubelet.delete_pod, "team", "train")
            wait_upgrade(agent, phase="install")
            agent.wait_until(UPGRADES, lambda _: (short_dir / "begun").exists(), "the installer was never run")
            agent.process.kill()
            agent.process.wait()
        (short_dir / "killed").touch()
        with running_agent(short_dir, "--config", str(file)) as agent:
            ended = wait_upgrade(agent, ending="done")
            assert (ended["number"], ended["before"], ended["wanted"]) == (begun["number"], begun["before"], NEW)
            agent.wait_for("/api/v1/driver", f'"module_version":"{NEW}"')
            agent.wait_gone("/api/v1/doors", "upgrade of the driver")
            portal.call(kubelet.wait_until, lambda: kubelet.count_free(GPU) > 0)
