"""What a scheduler chose and what containers have stay the same thing, whoever is restarted or set to another size.

The kubelet, the scheduler and the API server are real; the GPUs are made up.
"""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.extender import RIGHTS, ExtenderUnderTest
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME
from tests.integration.cluster.pods import WAIT, Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
INDEX = "tencent.com/predicate-gpu-idx-0"
FOLLOWING = (CHECKOUT / "deploy" / "rbac-pod-labels.yaml", CHECKOUT / "deploy" / "rbac-fractions.yaml")
HELD = "until [ -e /tmp/go ]; do sleep 0.1; done"


def make_settings(*gpus: str) -> dict[str, dict[str, Any]]:
    return {
        "fractions": {"enabled": True},
        "doors": {"rules": [{"gpus": list(gpus), "door": "fractions"}]},
        "kubelet": {"pod_resources_poll_seconds": 0.5},
    }


@pytest.fixture(autouse=True)
def rights(node: Cluster) -> Iterator[None]:
    """What the agent may do with pods beside what it may do everywhere."""
    for path in FOLLOWING:
        node.run("kubectl", "apply", "-f", str(path))
    yield
    for path in FOLLOWING:
        node.run("kubectl", "delete", "-f", str(path))


@pytest.fixture
def extender(node: Cluster) -> Iterator[ExtenderUnderTest]:
    """With its rights, and a scheduler that asks it."""
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    made = ExtenderUnderTest(node)
    try:
        made.start()
        made.wait_ready()
        made.restart_scheduler()
        yield made
    finally:
        made.close()


def read_bound(agent: AgentUnderTest) -> dict[str, list[tuple[int, int]]]:
    """By pod the index and the cores of each part; a pod whose name was not told yet is not among them."""
    indexes = {one["gpu"]["uuid"]: one["gpu"]["index"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    found = [each["binding"] for each in agent.get_json("/api/v1/parts")["bound"]]
    return {each["pod"]["name"]: [(indexes[part["gpu"]], part["cores"]) for part in each["parts"]] for each in found}


def is_held(pod: Json) -> bool:
    """Whether the container before the one with a part runs."""
    return any("running" in each["state"] for each in pod["status"].get("initContainerStatuses", ()))


@pytest.mark.timeout(300)
def test_a_choice_outlives_a_restart_before_the_container_starts(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """As in an upgrade during the pull of an image: the new agent first starts a pod that it never heard of."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=make_settings("0", "1", "2", "3"))
    node.wait_count(CORE, 400)
    init = render_pod("held", ("sh", "-c", HELD))["spec"]["containers"][0] | {"name": "held"}
    pod = render_pod(
        "late",
        ("sh", "-c", WAIT),
        limits={CORE: 30, MEMORY: 4},
        annotations={INDEX: "2"},
        spec={"initContainers": [init]},
    )
    pods.create(pod)
    found = pods.wait_for("late", "admitted and held", is_held)
    agent.stop(signal.SIGKILL)
    (status,) = found["status"]["initContainerStatuses"]
    node.run("crictl", "exec", status["containerID"].rpartition("/")[2], "touch", "/tmp/go")
    agent.start()
    agent.wait_ready()
    pods.wait("late", "Running", timeout_seconds=120)
    wait_until("the binding", lambda: None if "late" in read_bound(agent) else "not named yet", timeout_seconds=60)
    assert read_bound(agent)["late"] == [(2, 30)]
    assert pods.read("late")["metadata"]["annotations"][INDEX] == "2"


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("extender")
def test_the_extender_counts_what_a_person_has_set(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Of one GPU 50 are given and set to 60: 45 more are sent nowhere, and to that GPU when it is 55 again."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=make_settings("0"))
    node.wait_count(CORE, 100)
    pods.run(render_pod("first", ("sh", "-c", WAIT), limits={CORE: 50, MEMORY: 4}))
    wait_until("the binding", lambda: None if "first" in read_bound(agent) else "not named yet", timeout_seconds=60)
    agent.run("fractions", "set", "default/first", "--cores", "60")
    node.wait("the node to say so", "kubelet", lambda: None if says_cores(node, 60) else "not yet")
    pods.create(render_pod("second", ("sh", "-c", WAIT), limits={CORE: 45, MEMORY: 4}))
    refused = pods.wait_for("second", "refused", lambda pod: bool(refusal(pod)))
    assert "no GPU with 45 cores free" in refusal(refused)
    assert not refused["spec"].get("nodeName")
    agent.run("fractions", "set", "default/first", "--cores", "55")
    pods.wait("second", "Running", timeout_seconds=120)
    assert pods.read("second")["spec"]["nodeName"] == NODE_NAME
    wait_until("the binding", lambda: None if "second" in read_bound(agent) else "not named yet", timeout_seconds=60)
    assert read_bound(agent) == {"first": [(0, 55)], "second": [(0, 45)]}


def says_cores(node: Cluster, cores: int) -> bool:
    annotations = node.api.read_node()["metadata"]["annotations"]
    return f"[0,{cores}," in annotations.get("nvidia.com/gpu-fractions-bound", "")


def refusal(pod: Json) -> str:
    conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""
