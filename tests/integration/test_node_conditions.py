"""Faulty GPUs, told to repairers by node conditions, on the real API server with the policy that the chart renders."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import render_objects
from tests.integration.cluster.agent import AgentUnderTest, request_token
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_gpus import ENVIRONMENT
from tests.integration.test_rights import DENIED_BY_POLICY

EKS, NPD = "AcceleratedHardwareReady", "GPUProblem"
CONFIGURED = [{"type": EKS, "true_means": "healthy"}, {"type": NPD, "true_means": "faulty", "severity": "warn"}]
SETTINGS = {**ENVIRONMENT, "signals": {"node_conditions": CONFIGURED}}
STATUS = f"/api/v1/nodes/{NODE_NAME}/status"
TOLD_SECONDS = 20.0


@pytest.fixture(autouse=True)
def conditions(node: Cluster) -> Iterator[None]:
    """The policy as it is shipped, and the node of the session without these conditions, once more after the test."""
    yield
    node.run("kubectl", "apply", "-f", str(CHECKOUT / "deploy/rbac.yaml"))
    gone = [{"type": kind, "$patch": "delete"} for kind in (EKS, NPD)]
    node.api.patch(STATUS, {"status": {"conditions": gone}}, kind="strategic")


@pytest.fixture
def policy(node: Cluster, tmp_path: Path) -> Path:
    """The policy with the configured types, as the chart renders it; yet to be applied."""
    words = json.dumps(CONFIGURED)
    rendered = render_objects("--set-json", f"config.signals.node_conditions={words}")
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(rendered["ValidatingAdmissionPolicy", "nodeagent-own-node"]))
    return file


def read_told(node: Cluster) -> dict[str, tuple[str, str]]:
    found = node.api.read_node()["status"]["conditions"]
    return {each["type"]: (each["status"], each["reason"]) for each in found if each["type"] in (EKS, NPD)}


def wait_told(node: Cluster, **wanted: tuple[str, str]) -> None:
    def find_lack() -> str | None:
        told = read_told(node)
        return None if told == wanted else str(told)

    wait_until("the node conditions", find_lack, timeout_seconds=TOLD_SECONDS)


def wait_codes(agent: AgentUnderTest, code: str, words: str) -> None:
    def find_lack() -> str | None:
        found: Any = agent.get_json("/api/v1/conditions")
        details = [each["detail"] for each in found if each["code"] == code]
        return None if any(words in detail for detail in details) else str(found)

    wait_until(f"the condition {code}", find_lack, timeout_seconds=60)


def read_transition(node: Cluster, kind: str) -> str:
    found = node.api.read_node()["status"]["conditions"]
    return str(next(each["lastTransitionTime"] for each in found if each["type"] == kind))


def test_a_repairer_reads_a_fault_and_its_end(node: Cluster, policy: Path, make_agent: MakeAgent) -> None:
    """By both polarities, over a restart, and beside the kubelet's own conditions."""
    node.run("kubectl", "apply", "-f", str(policy))
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    fine = {EKS: ("True", "GPUsHealthy"), NPD: ("False", "GPUsHealthy")}
    wait_told(node, **fine)
    agent.break_it("xid", "94", "3")
    ill = {EKS: ("False", "GPUEccUncorrected"), NPD: ("True", "GPUEccUncorrected")}
    wait_told(node, **ill)
    since = read_transition(node, EKS)
    agent.restart()
    wait_told(node, **ill)
    assert read_transition(node, EKS) == since
    ready = next(each for each in node.api.read_node()["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True"
    agent.break_it("clear")
    agent.run("gpu", "clear", "3", "--reason", "mended")
    wait_told(node, **fine)


def test_the_policy_admits_the_configured_types_and_no_others(
    node: Cluster, policy: Path, make_agent: MakeAgent
) -> None:
    """Before it is applied the agent says why nothing is written, and its own condition is written all the same."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    wait_codes(agent, "node-conditions-not-written", "nodeagent changes nothing in a node's status but conditions")
    found = {each["type"]: each["status"] for each in node.api.read_node()["status"]["conditions"]}
    assert (found["nvidia.com/GPUReady"], EKS in found) == ("True", False)
    node.run("kubectl", "apply", "-f", str(policy))
    wait_until("the conditions", lambda: None if len(read_told(node)) == 2 else "not yet", timeout_seconds=120)
    caller = node.api_as(request_token(node))
    for kind in ("Ready", f"{EKS}s", "MemoryPressure"):
        patch = {"status": {"conditions": [{"type": kind, "status": "False", "reason": "r", "message": "m"}]}}
        with pytest.raises(ApiRefused, match="nodeagent changes nothing in a node's status") as refusal:
            caller.patch(STATUS, patch, kind="strategic")
        assert refusal.value.status == DENIED_BY_POLICY


def test_a_condition_of_another_program_is_left_alone(node: Cluster, policy: Path, make_agent: MakeAgent) -> None:
    """Its writer is named; once the other program has taken it away the agent writes."""
    node.run("kubectl", "apply", "-f", str(policy))
    theirs = {"type": EKS, "status": "False", "reason": "DCGMError", "message": "m"}
    node.api.patch(STATUS, {"status": {"conditions": [theirs]}}, kind="strategic")
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    wait_codes(agent, "node-condition-contested", f"{EKS} is written by ")
    wait_told(node, **{EKS: ("False", "DCGMError"), NPD: ("False", "GPUsHealthy")})
    gone = {"type": EKS, "$patch": "delete"}
    node.api.patch(STATUS, {"status": {"conditions": [gone]}}, kind="strategic")
    wait_told(node, **{EKS: ("True", "GPUsHealthy"), NPD: ("False", "GPUsHealthy")})
