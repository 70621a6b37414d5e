"""A GPU that computes wrongly, and a queue of a hundred pods on a real scheduler that waits for proofs."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.cuda.driver import FakeDriver, build_driver
from tests.fakes.nvml.control import FakeNvml
from tests.integration.claims import CLAIMS, CLASSES, DRIVER, TEMPLATES, make_template, render, settings
from tests.integration.claims import RIGHTS as CLAIM_RIGHTS
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.pods import PATH, Pods
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_cordon import list_conditions
from tests.integration.test_rights import OTHER, OWN, Callers, callers
from tests.integration.test_slices import devices_of, taints_of

__all__ = ["callers"]

pytestmark = pytest.mark.timeout(540)
RIGHTS = CHECKOUT / "deploy" / "rbac-proof.yaml"
GPUS, ROOM = 8, 4 << 20
BAD = 0
"""The first GPU of the node, which a scheduler tries first."""
QUEUE_SECONDS = 420.0


@pytest.fixture
def rights(node: Cluster, make_agent: MakeAgent) -> Iterator[None]:
    """The rights of claims and of proofs; pods and claims go while the agent is there."""
    files = tuple(word for path in (CLAIM_RIGHTS, CLASSES, RIGHTS) for word in ("-f", str(path)))
    node.run("kubectl", "apply", *files)
    yield
    Pods(node).delete_all()
    for path in (CLAIMS, TEMPLATES):
        for one in node.api.get(path)["items"]:
            node.api.delete(f"{path}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", *files)


def use(node: Cluster, nvml: FakeNvml, path: Path) -> dict[str, dict[str, Any]]:
    """The settings of an agent whose GPUs compute, all but one rightly."""
    home = node.layout.run / "nvidia" / "driver"
    (library,) = (one for one in home.rglob("libcuda.so.*") if not one.is_symlink())
    shutil.copy(build_driver(), library)
    uuids = tuple(nvml.gpu(number).uuid.decode() for number in range(GPUS))
    cuda = FakeDriver(path, memory=(ROOM,) * GPUS, proves=True, uuids=uuids, wrong={"memory": 1000}, faulty=BAD)
    environment = {**nvml.environment, **cuda.environ()}
    return {
        **settings(node.layout),
        "driver": {"root": str(home), "worker_environment": environment},
        "cdi": {"dir": str(node.layout.cdi_dirs[1]), "hooks": "none"},
        "device_plugin": {"enabled": False},
        "proof": {"before_binding": "quick"},
    }


def find_device_of(claim: dict[str, Any]) -> str:
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or [{}]
    return str(results[0].get("device", ""))


@pytest.mark.parametrize("queue", [24, pytest.param(100, marks=pytest.mark.nightly)])
def test_a_queue_of_pods_never_starts_on_a_gpu_that_fails_its_proof(
    node: Cluster, rights: None, driver: FakeNvml, make_agent: MakeAgent, tmp_path: Path, queue: int
) -> None:
    """The scheduler chooses the bad GPU, hears of its failure, and chooses others; no pod waits for a person.

    The agent is killed meanwhile.
    """
    agent = make_agent(gpus="nvml", settings=use(node, driver, tmp_path))
    wait_until("devices that wait for a proof", lambda: find_unwaited(node), timeout_seconds=60)
    template = make_template(node)
    for number in range(queue):
        pod = render(f"queued-{number}", template=template, tell="sleep 1")
        pod["metadata"]["labels"] = {"queue": "proof"}
        node.api.post(PATH, pod)
    started = set[str]()
    wait_until("the first pods to start", lambda: follow_start(agent, started), timeout_seconds=60)
    agent.restart()
    wait_until("the queue to end", lambda: follow_queue(node, agent, started, queue), timeout_seconds=QUEUE_SECONDS)
    minors = {one["gpu"]["minor"] for one in agent.get_json("/api/v1/gpus")["gpus"] if one["gpu"]["index"] == BAD}
    (bad,) = (f"gpu-{minor}" for minor in minors)
    assert taints_of(node, bad) == {"proof-failed": "NoSchedule"}
    assert bad not in started
    assert len(started) == GPUS - 1
    (detail,) = list_conditions(agent.get_json("/api/v1/conditions"), "gpu-proof-failed")
    assert "(byte 8000)" in detail
    assert list_conditions(agent.get_json("/api/v1/conditions"), "claims-not-proven") == []
    events = node.run("kubectl", "get", "events", "-o", "jsonpath={.items[*].reason}")
    assert "BindingConditionsPending" in events


def find_unwaited(node: Cluster) -> str | None:
    found = devices_of(node)
    wanted = {"bindingConditions": ["nodeagent.io/proven"], "bindingFailureConditions": ["nodeagent.io/proof-failed"]}
    asking = [one for one in found.values() if wanted.items() <= one.items() and one.get("bindsToNode")]
    return None if len(asking) == GPUS else str(found)


def follow_start(agent: AgentUnderTest, started: set[str]) -> str | None:
    """Note the devices of the claims that are prepared, by the agent's word."""
    for one in agent.get_json("/api/v1/claims")["prepared"]:
        started.update(each["device"] for each in one["claim"]["devices"])
    return None if started else "no claim is prepared"


def follow_queue(node: Cluster, agent: AgentUnderTest, started: set[str], queue: int) -> str | None:
    """What is left of the queue."""
    follow_start(agent, started)
    pods = node.run("kubectl", "get", "pods", "-l", "queue=proof", "-o", "jsonpath={.items[*].status.phase}").split()
    phases = {phase: pods.count(phase) for phase in set(pods)}
    assert "Failed" not in phases
    return None if phases.get("Succeeded") == queue else f"{phases}"


@pytest.mark.parametrize(
    ("where", "driver_of", "is_taken"),
    [(OWN, DRIVER, True), (OTHER, DRIVER, False), (OWN, "nic.example.com", False)],
)
def test_an_agent_answers_for_its_own_devices_alone(
    callers: Callers, where: str, driver_of: str, *, is_taken: bool
) -> None:
    """Of the claims that are allocated on its node; neither allocation nor reservation is its to change."""
    name = f"{where}-{driver_of}"
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
    metadata, spec = {"name": name}, {"devices": {"requests": requests}}
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    callers.admin.post(CLAIMS, document)
    device = {"driver": driver_of, "pool": where, "device": "gpu-0"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [where]}]}
    allocation = {
        "devices": {"results": [{"request": "gpu", **device}]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    path = f"{CLAIMS}/{name}/status"
    callers.admin.patch(path, {"status": {"allocation": allocation}})
    told = {"type": "nodeagent.io/proven", "status": "True", "reason": "Proven", "message": "m"}
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    answer = {"status": {"devices": [{**device, "conditions": [told | since]}]}}
    refusal = find_refusal(callers, path, answer)
    assert refusal == "" if is_taken else "resourceclaims/driver" in refusal
    pod = {"resource": "pods", "name": "x", "uid": "u"}
    for stolen in ({"allocation": None}, {"reservedFor": [pod]}):
        assert "resourceclaims/binding" in find_refusal(callers, path, {"status": stolen})


def find_refusal(callers: Callers, path: str, patch: dict[str, Any]) -> str:
    """Why the agent's patch is refused; empty for one that is taken."""
    try:
        callers.agent.patch(path, patch)
    except ApiRefused as error:
        return error.message
    return ""
