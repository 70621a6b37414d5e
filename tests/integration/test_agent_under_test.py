"""The agent fixture itself, so that a failing scenario is never the fixture's fault."""

import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ProcessDied
from tests.integration.cluster.namespace import find_members
from tests.integration.conftest import MakeAgent


def test_the_agent_runs_beside_the_real_kubelet(node: Cluster, make_agent: MakeAgent) -> None:
    """Its settings name the kubelet's real directories, it becomes ready, and a stop gives its exit status."""
    agent = make_agent(gpus="simulated:dgx-h100", settings={"log": {"level": "debug"}})
    settings = yaml.safe_load(agent.config_file.read_text())
    assert (Path(settings["kubelet"]["device_plugins_dir"]) / "kubelet.sock").is_socket()
    assert Path(settings["kubelet"]["pod_resources_socket"]).is_socket()
    assert agent.get("/livez")[0] == 200
    assert agent.stop() == 0


def test_an_agent_left_behind_is_found(node: Cluster, make_agent: MakeAgent) -> None:
    """The agent of a test run that was killed counts as a part of its cluster, so that `down` ends it."""
    agent = make_agent()
    assert agent.process is not None
    assert agent.process.pid in [each.pid for each in find_members(node.layout)]


def test_an_agent_that_ends_is_told_with_its_last_words(make_agent: MakeAgent) -> None:
    """Waiting for an agent that has exited fails at once, and shows what it said."""
    with pytest.raises(ProcessDied, match="cannot go on"):
        make_agent(command=(sys.executable, "-c", "raise SystemExit('cannot go on')"))
