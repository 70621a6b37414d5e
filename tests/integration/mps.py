"""Daemons of MPS on the real cluster: whose program they are, how they stand, and who has shares of their GPUs."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.mps.processes import find_daemon
from tests.fakes.mps import FakeMps
from tests.integration.claims import API, CLAIMS, CLASSES, RIGHTS
from tests.integration.claims import settings as settings_of_claims
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

GPU = "nvidia.com/gpu"
CLIENT = "/client/mps-client"
WORK = ("sh", "-c", f"trap 'kill $!; exit 0' TERM; {CLIENT} & wait $!")
PATIENCE_SECONDS = 60.0


class Node:
    """A program for daemons, those daemons, and the settings that have them started."""

    def __init__(self, place: Path, program: Path | None = None) -> None:
        """With the stand-in, and a client of it for containers, where no program is named."""
        self.root, self.client = place / "mps", place / "client"
        self.client.mkdir()
        if program is None:
            fake = FakeMps(place / "driver")
            fake.install_client(self.client / "mps-client")
            program = fake.program
        self.program = program

    def settings(self, replicas: int = 2) -> dict[str, dict[str, Any]]:
        return {
            "device_plugin": {"device_list_strategy": ["envvar"], "mps_root": str(self.root)},
            "kubelet": {"pod_resources_poll_seconds": 0.5},
            "journal": {"free_after_seconds": 2},
            "mps": {"program": str(self.program), "look_seconds": 1},
            "sharing": {"mps": {"resources": [{"name": GPU, "replicas": replicas}]}},
        }

    def settings_of_fractions(self) -> dict[str, dict[str, Any]]:
        """Those of a node that gives its GPUs in parts, held by MPS."""
        return {
            **self.settings(),
            "sharing": {},
            "fractions": {"enabled": True, "enforcement": "mps"},
            "doors": {"rules": [{"gpus": ["all"], "door": "fractions"}]},
        }

    def render(self, name: str) -> dict[str, Any]:
        """A pod that works through the daemon of its share."""
        pod: dict[str, Any] = render_pod(name, WORK, limits={GPU: 1})
        self.mount(pod)
        return pod

    def mount(self, pod: dict[str, Any]) -> None:
        """Give its container the client."""
        mount = {"name": "client", "mountPath": "/client", "readOnly": True}
        pod["spec"]["containers"][0]["volumeMounts"] = [mount]
        pod["spec"]["volumes"] = [{"name": "client", "hostPath": {"path": str(self.client)}}]

    def close(self) -> None:
        """End what is left of daemons."""
        for pipes in self.root.glob("**/pipe"):
            while (pid := find_daemon(pipes)) is not None:
                os.kill(pid, signal.SIGKILL)
                time.sleep(0.05)
        if (memory := self.root / "shm").is_mount():
            subprocess.run(["umount", "--lazy", memory], check=True)


@contextmanager
def make_node(program: Path | None = None) -> Iterator[Node]:
    """Directories of its own, and no daemon left."""
    place = Path(tempfile.mkdtemp(prefix="na-mps-"))
    place.chmod(0o755)
    node = Node(place, program)
    yield node
    node.close()
    shutil.rmtree(place)


def list_daemons(agent: AgentUnderTest) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.get_json("/api/v1/mps")["daemons"]
    return found


def wait_daemons(
    agent: AgentUnderTest, what: str, holds: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    def probe() -> str | None:
        found = list_daemons(agent)
        return None if holds(found) else str(found)

    wait_until(what, probe, timeout_seconds=PATIENCE_SECONDS)
    return list_daemons(agent)


def wait_ready(agent: AgentUnderTest, count: int = 1) -> list[dict[str, Any]]:
    return wait_daemons(
        agent,
        f"{count} daemons to be ready",
        lambda found: len(found) == count and all(one["phase"] == "ready" for one in found),
    )


def list_clients(daemon: dict[str, Any]) -> set[str]:
    return {client["pod"] for server in daemon.get("servers", []) for client in server.get("clients", [])}


@pytest.fixture
def claiming(node: Cluster, make_agent: MakeAgent, mps: Node) -> Iterator[AgentUnderTest]:
    """A node of which all GPUs are given by claims, which may ask for MPS."""
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    of_mps = mps.settings()
    agent = make_agent(
        gpus="simulated:dgx-h100",
        settings={
            **settings_of_claims(node.layout),
            "device_plugin": of_mps["device_plugin"],
            "mps": {**of_mps["mps"], "claims": True},
        },
    )

    def offered() -> str | None:
        slices = node.api.get(f"{API}/resourceslices")["items"]
        count = sum(len(one["spec"].get("devices") or ()) for one in slices)
        return None if count == 8 and agent.get_json("/api/v1/claims")["standing"]["registered"] else f"{count}"

    wait_until("8 devices in slices, and the driver registered", offered, timeout_seconds=30)
    yield agent
    Pods(node).delete_all()
    for one in node.api.get(CLAIMS)["items"]:
        node.api.delete(f"{CLAIMS}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", "-f", str(RIGHTS), "-f", str(CLASSES))
