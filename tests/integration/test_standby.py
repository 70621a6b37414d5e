"""An update of the chart's DaemonSet: the next pod is ready as a standby before the old pod ends, while pods come.

Between the end of one registration and the next a kubelet refuses a pod that asks for GPUs, and the pod's controller
makes another: all pods of a Job must have run in the end, each by one answer of one agent.
"""

import json
import math
import sys
import time
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.deployment import Deployment, is_ready
from tests.integration.test_daemonset import CONFIG, GPU

GPUS = 8
PODS = 30
PODS_AT_NIGHT = 100
AT_A_TIME = 3
HELD = 2
pytestmark = pytest.mark.every_version

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB = "comers"
LOOK_SECONDS = 0.05
JOB_SECONDS = 120.0
JOB_SECONDS_AT_NIGHT = 900.0
"""A Job waits longer and longer after pods that were refused."""


class Look(NamedTuple):
    """What the API server shows at one time."""

    seconds: float
    running: int
    """Agents, the standby included."""
    capacity: int
    allocatable: int


def look(deployment: Deployment, node: Cluster) -> Look:
    agents = deployment.list_pods()
    status = node.api.read_node()["status"]
    return Look(
        seconds=time.monotonic(),
        running=sum(
            "running" in each.get("state", {}) for pod in agents for each in pod["status"].get("containerStatuses", ())
        ),
        capacity=int(status["capacity"].get(GPU, 0)),
        allocatable=int(status["allocatable"].get(GPU, 0)),
    )


def count_gap_seconds(looks: list[Look]) -> float:
    """How long the node's status had fewer GPUs to give: told, not judged, as the kubelet's reports decide."""
    return sum(after.seconds - before.seconds for before, after in pairwise(looks) if before.allocatable < GPUS)


def begin_job(node: Cluster, completions: int) -> None:
    """Short pods with a GPU each, some at a time."""
    pod = render_pod(JOB, ("sleep", "0.5"), limits={GPU: 1})
    spec = {
        "completions": completions,
        "parallelism": AT_A_TIME,
        "backoffLimit": completions,
        "template": {"metadata": {}, "spec": pod["spec"]},
    }
    node.api.post(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB}, "spec": spec})


def read_job(node: Cluster) -> Json:
    status: Json = node.api.get(f"{JOBS}/{JOB}")["status"]
    return status


def test_an_update_while_pods_come_refuses_none_for_good(deployment: Deployment, node: Cluster, pods: Pods) -> None:
    update_while_pods_come(deployment, node, pods, PODS, JOB_SECONDS)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_an_update_while_a_hundred_pods_come_refuses_none_for_good(
    deployment: Deployment, node: Cluster, pods: Pods
) -> None:
    update_while_pods_come(deployment, node, pods, PODS_AT_NIGHT, JOB_SECONDS_AT_NIGHT)


def update_while_pods_come(
    deployment: Deployment, node: Cluster, pods: Pods, completions: int, limit_seconds: float
) -> None:
    """The pod that holds GPUs runs on, all that come get one, and by the journal each GPU has one pod at a time."""
    deployment.install(CONFIG)
    before = deployment.wait_ready()
    node.wait_count(GPU, GPUS)
    pods.run(render_pod("holder", limits={GPU: HELD}))
    container = pods.container_id("holder")
    begin_job(node, completions)
    try:
        wait_until(
            "the first pods of the Job to have run",
            lambda: None if (seen := read_job(node)).get("succeeded", 0) >= AT_A_TIME else str(seen),
            timeout_seconds=60,
        )
        deployment.kubectl("rollout", "restart", "daemonset/nodeagent")
        looks: list[Look] = []

        def watch() -> str | None:
            looks.append(look(deployment, node))
            status = read_job(node)
            return None if status.get("succeeded", 0) == completions else str(status)

        wait_until("all pods of the Job to have run", watch, timeout_seconds=limit_seconds, poll_seconds=LOOK_SECONDS)
        deployment.wait_ready(other_than=before["metadata"]["uid"])
        refused = [pod for pod in list_job_pods(node) if pod["status"]["phase"] == "Failed"]
        gap_seconds = count_gap_seconds(looks)
        sys.stderr.write(f"\nan update with {completions} pods: {len(refused)} replaced, {gap_seconds:.2f} s without\n")
        assert {pod["status"]["reason"] for pod in refused} <= {"UnexpectedAdmissionError"}
        assert max(each.running for each in looks) == 2
        assert "standby_took_over" in deployment.kubectl("logs", "daemonset/nodeagent", "--container=nodeagent")
        assert {each.capacity for each in looks} == {GPUS}
        node.wait_count(GPU, GPUS)
        assert pods.container_id("holder") == container
        check_account(deployment, completions, len(refused))
    finally:
        node.api.delete(f"{JOBS}/{JOB}", {"propagationPolicy": "Foreground"})


def list_job_pods(node: Cluster) -> list[Json]:
    found: list[Json] = node.api.get("/api/v1/namespaces/default/pods", labelSelector=f"job-name={JOB}")["items"]
    return found


def check_account(deployment: Deployment, completions: int, refused: int) -> None:
    """Each pod was given its GPU once, and no GPU had two pods at a time, whichever agent has answered."""
    rows: list[dict[str, Any]] = [
        row
        for words in (("--history",), ())
        for row in json.loads(deployment.exec("nodeagent", "allocations", *words, "--json"))
    ]
    assert completions <= sum(len(row["devices"]) == 1 for row in rows) <= completions + refused
    for device in {device for row in rows for device in row["devices"]}:
        spans = sorted(
            (row["since_seconds"], row.get("until_seconds") or math.inf) for row in rows if device in row["devices"]
        )
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), device


def test_a_version_that_cannot_start_leaves_the_old_one_at_work(deployment: Deployment, node: Cluster) -> None:
    """Its pod never becomes ready, so nobody tells the old pod to stop; the way back ends it."""
    deployment.install(CONFIG)
    before = deployment.wait_ready()
    node.wait_count(GPU, GPUS)
    deployment.install({**CONFIG, "inventory": {"rescan_secnods": 1}})

    def has_failed() -> str | None:
        others = [pod for pod in deployment.list_pods() if pod["metadata"]["uid"] != before["metadata"]["uid"]]
        states = [each for pod in others for each in pod["status"].get("containerStatuses", ())]
        return None if any(each["restartCount"] for each in states) else json.dumps(states)

    wait_until("the new pod to have failed", has_failed, timeout_seconds=60)
    (old,) = [pod for pod in deployment.list_pods() if pod["metadata"]["uid"] == before["metadata"]["uid"]]
    assert is_ready(old)
    assert "deletionTimestamp" not in old["metadata"]
    assert node.count(GPU) == GPUS
    deployment.install(CONFIG)
    assert deployment.wait_ready()["metadata"]["uid"] == before["metadata"]["uid"]
