"""Metadata files on a real kubelet and runtime: a container reads about its devices where programs look for them."""

import json
import shutil
import signal
from typing import Any

import pytest

from tests.integration.claims import DRIVER, check, make_claim, make_template, prepared, render, wait_none
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import WAIT, Pods, has_reached
from tests.integration.cluster.processes import wait_until
from tests.integration.test_claims import agent, count_restarts, profile

__all__ = ["agent", "profile"]

PLACE = "/var/run/kubernetes.io/dra-device-attributes"
TELL = f"env; for file in {PLACE}/*/*/*/*; do echo FILE $file; cat $file; done; {WAIT}"


@pytest.fixture
def choices() -> dict[str, Any]:
    """The cluster's kubelet is older than the programs that read such files."""
    return {"metadata_files": "true"}


def read(node: Cluster, pod: str, container: str = "main") -> dict[str, list[Json]]:
    """What the container found when it started, by path: the documents of each file."""
    found: dict[str, list[Json]] = {}
    for line in node.run("kubectl", "logs", pod, "-c", container).splitlines():
        if line.startswith("FILE "):
            found[line.removeprefix(f"FILE {PLACE}/")] = []
        elif line.startswith("{"):
            found[[*found][-1]].append(json.loads(line))
    return found


def uuids(documents: list[Json]) -> set[str]:
    """As the newest version says it, which the others repeat."""
    assert [each["requests"] for each in documents[1:]] == [documents[0]["requests"]]
    (request,) = documents[0]["requests"]
    assert all((each["driver"], each["pool"]) == (DRIVER, NODE_NAME) for each in request["devices"])
    return {each["attributes"]["uuid"]["string"] for each in request["devices"]}


def test_each_container_reads_about_the_requests_that_it_names(
    node: Cluster, agent: AgentUnderTest, pods: Pods
) -> None:
    """At the path of the claim's name, or of the pod's own name for it; nothing is left when the pods are gone."""
    make_template(node)
    both = make_claim(node, "both", "first", "second")
    pods.run(render("own", template="each", tell=TELL))
    containers = {"main": "first", "other": "second", "all": ""}
    pods.run(render("pair", claim=both, containers=containers, tell=TELL))
    gpus = check(node, agent, "own")
    name = f"{DRIVER}-metadata.json"
    ((path, documents),) = read(node, "own").items()
    assert path == f"resourceclaimtemplates/gpus/gpu/{name}"
    assert uuids(documents) == gpus
    assert documents[0]["podClaimName"] == "gpus"
    first, second = (f"resourceclaims/both/{request}/{name}" for request in ("first", "second"))
    found = {container: read(node, "pair", container) for container in containers}
    assert [sorted(each) for each in found.values()] == [[first], [second], [first, second]]
    assert found["all"] == found["main"] | found["other"]
    claim = node.api.get(f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{both}")
    metadata = found["main"][first][0]["metadata"]
    assert (metadata["uid"], metadata["generation"]) == (claim["metadata"]["uid"], 1)
    by_request = {one["request"]: one["device"] for one in claim["status"]["allocation"]["devices"]["results"]}
    (device,) = found["other"][second][0]["requests"][0]["devices"]
    assert device["name"] == by_request["second"]
    pods.delete("own", "pair")
    wait_none(agent)
    assert list((node.layout.agent / "state" / "claim-metadata").iterdir()) == []


def test_a_container_that_starts_again_finds_its_file_whatever_was_lost(
    node: Cluster, agent: AgentUnderTest, pods: Pods
) -> None:
    """The agent was killed, and what it had written is gone: it is there again before the agent is asked for it."""
    make_claim(node, "kept")
    pod = render("kept", claim="kept", tell=TELL)
    pod["spec"]["restartPolicy"] = "Always"
    pods.run(pod)
    before = read(node, "kept")
    assert len(before) == 1
    agent.stop(signal.SIGKILL)
    folder = node.layout.agent / "state" / "claim-metadata"
    shutil.rmtree(folder)
    for file in node.layout.cdi_dirs[1].glob("k8s.gpu.nvidia.com-claim_*"):
        file.unlink()
    agent.start()
    agent.wait_ready()
    wait_until("the file to be back", lambda: None if [*folder.glob("*/gpu.json")] else "none", timeout_seconds=20)
    assert set(prepared(agent)) == {"kept"}
    started = count_restarts(pods.read("kept"))
    node.run("crictl", "stop", "--timeout", "0", pods.container_id("kept"))
    pods.wait_for("kept", "started again", lambda one: count_restarts(one) > started and has_reached(one, "Running"))
    assert read(node, "kept") == before
    pods.delete("kept")
    wait_none(agent)


def test_a_pod_starts_without_files_that_cannot_be_written(node: Cluster, agent: AgentUnderTest, pods: Pods) -> None:
    """The condition says which claim has none; it goes with the claim."""
    (node.layout.agent / "state" / "claim-metadata").write_text("in the way")
    make_claim(node, "bare")
    pods.run(render("bare", claim="bare", tell=TELL))
    check(node, agent, "bare", "bare")
    assert read(node, "bare") == {"*/*/*/*": []}
    (told,) = (one for one in agent.get_json("/api/v1/conditions") if one["code"] == "claim-metadata-not-written")
    assert told["detail"].startswith("default/bare: ")
    (node.layout.agent / "state" / "claim-metadata").unlink()
    pods.delete("bare")
    wait_none(agent)
    assert "claim-metadata-not-written" not in agent.get("/api/v1/conditions")[1]
