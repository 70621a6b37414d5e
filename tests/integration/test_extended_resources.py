"""A name of an extended resource that comes by claims and by the device plugin of one node: told, and nothing twice."""

import pytest

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_doctor import examine
from tests.integration.test_slices import GPU, _tidy, devices_of, rights, settings, wait_devices, wait_given

__all__ = ["_tidy", "rights"]

CODE = "resource-by-two-ways"
CLASS = f"/apis/resource.k8s.io/v1/deviceclasses/{GPU}"
RESOURCE = "nvidia.com/gpu"
SHOWN_SECONDS = 60.0
"""The condition is shown half a minute after it is true."""


@pytest.fixture
def mixed(node: Cluster, make_agent: MakeAgent, rights: None) -> AgentUnderTest:
    """Six GPUs by the device plugin and two by claims, under the same name."""
    node.api.patch(CLASS, {"spec": {"extendedResourceName": RESOURCE}})
    rules = {"doors": {"rules": [{"gpus": ["6", "7"], "door": "claims"}]}}
    agent = make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout) | rules)
    wait_devices(node, 2)
    node.wait_count(RESOURCE, 6)
    return agent


def wait_told(agent: AgentUnderTest, *, told: bool) -> None:
    def probe() -> str | None:
        found = agent.get("/api/v1/conditions")[1]
        return None if (CODE in found) is told else found

    wait_until(f"the condition to be {'told' if told else 'gone'}", probe, timeout_seconds=SHOWN_SECONDS)


def claim_of(pod: Json) -> str | None:
    status = pod["status"].get("extendedResourceClaimStatus")
    return None if status is None else str(status["resourceClaimName"])


def test_a_doubled_name_is_told_until_the_class_has_it_no_more(node: Cluster, mixed: AgentUnderTest) -> None:
    """By the agent and by the doctor, with the class and both numbers."""
    wait_told(mixed, told=True)
    (condition,) = (one for one in mixed.get_json("/api/v1/conditions") if one["code"] == CODE)
    assert condition["detail"].startswith(f"the device plugin offers 6 of {RESOURCE}, and by the class {GPU} ")
    found = [one for checks in examine(mixed).values() for one in checks if CODE in one["found"]]
    assert [one["grade"] for one in found] == ["warn"]
    node.api.patch(CLASS, {"spec": {"extendedResourceName": None}})
    wait_told(mixed, told=False)


def test_no_gpu_is_given_twice_when_the_device_plugin_goes(node: Cluster, mixed: AgentUnderTest, pods: Pods) -> None:
    """Those in slices are others than those that pods have by the device plugin; they stay out while pods have them."""
    pods.run(render_pod("by-plugin", limits={RESOURCE: 6}))
    assert claim_of(pods.read("by-plugin")) is None
    held = {device for each in mixed.get_json("/api/v1/allocations") for device in each["devices"]}
    assert len(held) == 6
    wait_until(
        "the agent to name the pod",
        lambda: None if "by-plugin" in mixed.get("/api/v1/allocations")[1] else "it does not",
        timeout_seconds=30,
    )
    for index in range(6):
        assert "default/by-plugin" in mixed.run("gpu", "set-door", str(index), "claims")
    node.wait_count(RESOURCE, 0)
    offered = devices_of(node)
    assert not held & {one["attributes"]["uuid"]["string"] for one in offered.values()}
    pods.create(render_pod("by-claim", limits={RESOURCE: 2}))
    name = claim_of(pods.wait_for("by-claim", "given a claim", lambda one: claim_of(one) is not None))
    assert name is not None
    assert set(wait_given(node, pods, name)) == set(offered)
