"""A Job that leaves failures by a GPU's fault uncounted, on a real cluster; and the receipt of a pod that is gone."""

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.pods import Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_gpus import ENVIRONMENT, GPU
from tests.integration.test_pod_events import find_index
from tests.integration.test_refused_pods import JOBS, render_template

CONDITION = "nodeagent.io/GPUFault"
SETTINGS = {**ENVIRONMENT, "signals": {"pod_condition": True}}
WORK = "until [ -e /failed ]; do [ -e /done ] && exit 0; sleep 0.1; done; exit 1"
"""A program that ends as the test says."""
SECONDS = 60.0
RIGHTS = CHECKOUT / "deploy" / "rbac-pod-conditions.yaml"


@pytest.fixture(autouse=True)
def rights(node: Cluster) -> Iterator[None]:
    """What the agent may write into the status of pods."""
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    yield
    node.run("kubectl", "delete", "-f", str(RIGHTS))


@pytest.fixture
def job(node: Cluster) -> Iterator[str]:
    """The path of the documented Job, with a pod of ours and no failure to spare."""
    page = (CHECKOUT / "docs" / "signals.md").read_text()
    job = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    template = render_template(render_pod("train", ("sh", "-c", WORK), limits={GPU: 1}), app="train")
    node.api.post(JOBS, job | {"spec": job["spec"] | {"backoffLimit": 0, "template": template}})
    yield f"{JOBS}/train"
    node.api.delete(f"{JOBS}/train", {"propagationPolicy": "Foreground"})
    wait_until(
        "the Job to be gone", lambda: "still there" if node.api.find(f"{JOBS}/train") else None, timeout_seconds=SECONDS
    )


def wait_pod(node: Cluster, pods: Pods, *before: str) -> str:
    """The name of the Job's running pod, which is none of the earlier pods."""
    path = "/api/v1/namespaces/default/pods"
    found: list[Json] = []

    def find_lack() -> str | None:
        every = node.api.get(path, labelSelector="app=train")["items"]
        found[:] = [each for each in every if each["metadata"]["name"] not in before]
        return None if found and has_reached(found[0], "Running") else json.dumps([each["status"] for each in every])

    wait_until("the Job's pod to run", find_lack, timeout_seconds=SECONDS)
    return str(found[0]["metadata"]["name"])


def find_condition(pod: Json) -> Json | None:
    return next((each for each in pod["status"].get("conditions", ()) if each["type"] == CONDITION), None)


def end(pods: Pods, name: str, how: str) -> None:
    # The program ends the container at once, and would end a command that is still at it.
    pods.exec(name, "sh", "-c", f"(sleep 0.5; touch /{how}) >/dev/null 2>&1 &")


def wait_receipt(agent: AgentUnderTest, pod: str) -> Json:
    """The receipt of a pod, once the agent knows that the pod has given its GPU back."""
    found: list[Json] = []

    def find_lack() -> str | None:
        receipts = agent.get_json("/api/v1/receipts")
        found[:] = [each for each in receipts if each["pod"] == pod]
        return None if found else json.dumps(receipts)

    wait_until(f"the receipt of {pod}", find_lack, timeout_seconds=SECONDS)
    return found[0]


def test_a_job_runs_its_pod_again_after_a_fault_and_counts_its_own_failures(
    node: Cluster, pods: Pods, make_agent: MakeAgent, job: str
) -> None:
    """The receipt of the first pod outlives the pod and a kill of the agent."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    node.wait_count(GPU, 8)
    first = wait_pod(node, pods)
    index = find_index(agent, pods, first)
    agent.break_it("xid", "79", str(index))
    seen = pods.wait_for(first, "told of the fault", lambda pod: find_condition(pod) is not None, timeout_seconds=10)
    condition = find_condition(seen)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "GPUFault")
    assert condition["message"].startswith(f"[gpu-health] [CRITICAL] Xid 79 (the GPU fell off the bus) on GPU {index} ")
    end(pods, first, "failed")
    second = wait_pod(node, pods, first)
    assert find_index(agent, pods, second) != index
    assert find_condition(pods.read(second)) is None
    end(pods, second, "done")
    wait_until("the Job to be complete", lambda: find_lack_of(node, job, "Complete"), timeout_seconds=SECONDS)
    assert node.api.get(job)["status"].get("failed", 0) == 0
    node.api.delete(job, {"propagationPolicy": "Foreground"})
    receipt = wait_receipt(agent, first)
    agent.restart()
    node.wait_count(GPU, 8)
    assert wait_receipt(agent, first) == receipt
    assert (receipt["pod_uid"], receipt["verdict"]) == (seen["metadata"]["uid"], "hardware")
    assert [(each["number"], each["severity"], each["index"]) for each in receipt["faults"]] == [
        (79, "critical", index)
    ]
    assert wait_receipt(agent, second)["faults"] == []
    (line,) = [each for each in agent.run("allocations", "--history").splitlines() if first in each]
    assert "hardware" in line
    assert "XID 79" in line


def test_a_fault_of_the_program_is_counted(node: Cluster, pods: Pods, make_agent: MakeAgent, job: str) -> None:
    """The pod has no condition, and the Job has failed."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    node.wait_count(GPU, 8)
    name = wait_pod(node, pods)
    agent.break_it("xid", "31", str(find_index(agent, pods, name)))
    wait_until(
        "the fault to be noted",
        lambda: None if any("GPUXidError" in each for each in pods.read_events(name)) else "no event yet",
        timeout_seconds=SECONDS,
    )
    assert find_condition(pods.read(name)) is None
    end(pods, name, "failed")
    wait_until("the Job to have failed", lambda: find_lack_of(node, job, "Failed"), timeout_seconds=SECONDS)


def find_lack_of(node: Cluster, job: str, kind: str) -> str | None:
    """Why the Job has not ended so."""
    status = node.api.get(job)["status"]
    conditions = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    return None if kind in conditions else json.dumps(status)
