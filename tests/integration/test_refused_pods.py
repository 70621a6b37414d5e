"""Pods that the node refuses, on a real kubelet: they stay, or go where the configuration and a controller say so.

The GPUs are made up; who refuses, who gives a pod up and who makes another is real.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.pods import Pods
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_fractions import CORE, PROFILE, SETTINGS, render_part

RIGHTS = CHECKOUT / "deploy" / "rbac-refused-pods.yaml"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
NO_PART = 150
"""Hundredths of a GPU that are neither a part nor whole GPUs: refused at the admission."""


@pytest.fixture(autouse=True)
def rights(node: Cluster) -> Iterator[None]:
    """What the agent may do with pods beside what it may do everywhere."""
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    yield
    node.run("kubectl", "delete", "-f", str(RIGHTS))


def make_settings(*phases: str) -> dict[str, dict[str, Any]]:
    return {**SETTINGS, "kubernetes": {"delete_refused_pods": list(phases), "refused_pod_wait_seconds": 10}}


def render_template(pod: Json, **labels: str) -> Json:
    return {"metadata": {"labels": labels}, "spec": pod["spec"]}


def is_refused_at_start(pod: Json) -> bool:
    """Whether the kubelet says that the device plugin would not have the container start."""
    waiting = [each["state"].get("waiting", {}) for each in pod["status"].get("containerStatuses", ())]
    return any("PreStartContainer" in each.get("message", "") for each in waiting)


def read_told(node: Cluster, *pods: str) -> set[str]:
    """Those of the pods with an event that says that they are deleted."""
    events = node.api.get("/api/v1/namespaces/default/events", fieldSelector="reason=RefusedPodDeleted")
    return {each["involvedObject"]["name"] for each in events["items"]}.intersection(pods)


def test_a_pod_that_the_kubelet_gave_up_goes_where_it_has_a_controller(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """By default none goes; with the setting the pod of a Job does, be it refused before, and a bare pod stays."""
    agent = make_agent(gpus=PROFILE, settings=make_settings())
    node.wait_count(CORE, 400)
    pods.create(render_part("bare", NO_PART, 0))
    template = render_template(render_part("once", NO_PART, 0))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"backoffLimit": 0, "template": template},
    }
    node.api.post(JOBS, job)
    try:
        wait_until("the Job to have failed", lambda: find_unfailed(node), timeout_seconds=90)
        (of_job,) = {*pods.names()} - {"bare"}
        for name in ("bare", of_job):
            assert pods.wait(name, "Failed")["status"]["reason"] == "UnexpectedAdmissionError"
        assert read_told(node, "bare", of_job) == set()
        agent.settings = make_settings("failed")
        agent.restart()
        wait_until("the Job's pod to go", lambda: "still there" if of_job in pods.names() else None, timeout_seconds=60)
        assert pods.names() == ("bare",)
        assert read_told(node, "bare", of_job) == {of_job}
        assert f"delete the refused pod default/{of_job}" in agent.run("audit")
        assert find_unfailed(node) is None, "the Job has counted its pod"
    finally:
        node.api.delete(f"{JOBS}/once", {"propagationPolicy": "Foreground"})


def find_unfailed(node: Cluster) -> str | None:
    status = node.api.get(f"{JOBS}/once")["status"]
    return None if status.get("failed") == 1 else str(status)


@pytest.mark.timeout(300)
def test_a_pod_that_finds_its_gpu_taken_is_replaced_and_comes_up(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """The pod of a StatefulSet, after the time that the kubelet has for its own tries; a bare pod waits on."""
    make_agent(gpus=PROFILE, settings=make_settings("pending"))
    node.wait_count(CORE, 400)
    for number in range(4):
        pods.run(render_part(f"some-{number}", 60, 8))
    pods.create(render_part("bare", 60, 8))
    bare = pods.wait_for("bare", "refused at its start", is_refused_at_start)
    template = render_template(render_part("late", 60, 8), app="late")
    template["spec"]["restartPolicy"] = "Always"
    spec = {"serviceName": "late", "selector": {"matchLabels": {"app": "late"}}, "template": template}
    node.api.post(SETS, {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "late"}, "spec": spec})
    try:
        first = pods.wait_for("late-0", "refused at its start", is_refused_at_start)
        uid = first["metadata"]["uid"]
        pods.wait_for("late-0", "another", lambda pod: pod["metadata"]["uid"] != uid, timeout_seconds=90)
        assert read_told(node, "bare", "late-0") == {"late-0"}
        assert pods.read("bare")["metadata"]["uid"] == bare["metadata"]["uid"]
        pods.delete("bare", "some-2")
        pods.wait("late-0", "Running", timeout_seconds=120)
    finally:
        node.api.delete(f"{SETS}/late", {"propagationPolicy": "Foreground"})
