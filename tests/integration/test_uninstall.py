"""`nodeagent uninstall` on a real node: what the agent wrote in the cluster and on the host is gone."""

import subprocess

import pytest

from tests.integration.cluster.agent import COMMAND
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

pytestmark = pytest.mark.e2e


def test_uninstall_leaves_the_node_as_it_was(node: Cluster, make_agent: MakeAgent) -> None:
    """Under the shipped rights, labels, condition and files of the agent go; the node's own stay."""
    before = node.api.read_node()
    agent = make_agent(settings={"labels": {"hold_seconds": 0}})

    def labelled() -> str | None:
        found = node.api.read_node()
        conditions = {each["type"] for each in found["status"]["conditions"]}
        ready = "nvidia.com/GPUReady" in conditions and "nvidia.com/gpu.count" in found["metadata"]["labels"]
        return None if ready else f"{conditions} {found['metadata']['labels']}"

    wait_until("labels and condition", labelled, timeout_seconds=30)
    agent.stop()
    command = [COMMAND[0], "uninstall", "--config", str(agent.config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = node.api.read_node()
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert "nvidia.com/GPUReady" not in {each["type"] for each in after["status"]["conditions"]}
    assert not (node.layout.agent / "state").exists()
    assert not list(node.layout.cdi_dirs[1].glob("nvidia*"))
