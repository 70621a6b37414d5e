"""What the shipped rights and admission policies let an agent and the extender do, on the real API server.

Each request is made with a token as a pod's is: what is the program's own is taken, and what an attacker who has taken
the program over would write is refused by the policy that `docs/security.md` speaks of.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chart import pod_of, read_manifest, read_objects, render_objects
from tests.deploy.helm import MANIFEST
from tests.integration.cluster.api import Api
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.processes import wait_until

Json = dict[str, Any]
NAMESPACE, OWN, OTHER = "nodeagent", "own", "other"
DENIED_BY_POLICY = 422
FILES = ("rbac", *(each.stem for each in sorted((CHECKOUT / "deploy").glob("rbac-*.yaml"))), "flow-control")
FINALIZERS = {"metadata": {"finalizers": ["example.com/never"]}}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
CONTROLLER = OWNER | {"kind": "StatefulSet", "controller": True}
OWNERS = {"metadata": {"ownerReferences": [OWNER]}}
NODE, PODS = f"/api/v1/nodes/{OWN}", "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ABOUT_POD = {"apiVersion": "v1", "kind": "Pod", "name": OWN, "namespace": "default", "uid": "u"}
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
STATUS: Json = {
    "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}],
    "capacity": {"nvidia.com/gpu": "8"},
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    "images": [{"names": [f"example.com/image-{each}@sha256:{each:064x}"], "sizeBytes": each} for each in range(50)],
    "volumesInUse": ["kubernetes.io/csi/x^1"],
    "volumesAttached": [{"name": "kubernetes.io/csi/x^1", "devicePath": "/dev/x"}],
}
CONFIGURED = ("example.com/team", "gaia.tencent.com/gpu-model")
REFUSED: Json = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
NODE_INFO = {"kubeletVersion": "v1.0.0", "kernelVersion": "x", "osImage": "x", "containerRuntimeVersion": "x"}


@dataclass(frozen=True, slots=True)
class Callers:
    """The administrator, and both programs by their accounts."""

    admin: Api
    agent: Api
    extender: Api
    unbound: Api
    """The agent's account with a token that names no node."""


@pytest.fixture(scope="module")
def callers(api_server: Cluster) -> Callers:
    """Two nodes, and every file of rights applied as an administrator applies it; ready once the policies count."""
    admin = api_server.api
    for name in (OWN, OTHER):
        admin.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        admin.patch(f"/api/v1/nodes/{name}/status", {"status": STATUS})
    for name in FILES:
        api_server.run("kubectl", "apply", "-f", str(CHECKOUT / f"deploy/{name}.yaml"))
    uid = admin.read_node(OWN)["metadata"]["uid"]
    bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": OWN, "uid": uid}}
    made = Callers(
        admin,
        api_server.api_as(request_token(admin, "nodeagent", bound)),
        api_server.api_as(request_token(admin, "nodeagent-extender", {})),
        api_server.api_as(request_token(admin, "nodeagent", {})),
    )
    pod = make_pod(admin, OTHER)
    free = make_pod(admin, "")
    first_of_each_policy = (
        lambda: made.agent.patch(f"/api/v1/nodes/{OTHER}", {"metadata": {"labels": {"nvidia.com/a": "b"}}}),
        lambda: made.agent.post(EVENTS, render_event(OTHER)),
        lambda: made.agent.post(SLICES, render_slice(OTHER)),
        lambda: made.agent.patch(pod, annotate("tencent.com/predicate-node", new_name())),
        lambda: evict(made.agent, make_pod(admin, OTHER, namespace="kube-system")),
        lambda: made.agent.delete(make_pod(admin, OTHER)),
        lambda: made.agent.patch(f"{pod}/status", {"status": {"conditions": []}}),
        lambda: made.extender.patch(free, annotate("example.com/x", new_name())),
    )
    for request in first_of_each_policy:
        wait_until("a policy to count", partial(find_refusal, request), timeout_seconds=30)
    return made


def find_refusal(request: Callable[[], object]) -> str | None:
    """A policy counts some time after it was made; until then a request is taken."""
    try:
        request()
    except ApiRefused as error:
        return None if error.status == DENIED_BY_POLICY else str(error)
    return "the request was taken"


def request_token(admin: Api, account: str, spec: Json) -> str:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    return str(admin.post(path, {"spec": spec})["status"]["token"])


_names = count()


def new_name() -> str:
    return f"x{next(_names)}"


def make_pod(admin: Api, node: str, *, namespace: str = "default") -> str:
    """A pod that is bound to a node, or to none; its path."""
    name = new_name()
    where: Json = {"nodeName": node} if node else {"schedulerName": "nobody"}
    spec = {"containers": [{"name": "main", "image": "none"}], "automountServiceAccountToken": False, **where}
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if admin.find(f"{account}/default") is None:
        admin.post(account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    path = f"/api/v1/namespaces/{namespace}/pods"
    admin.post(path, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    return f"{path}/{name}"


def annotate(key: str, value: str) -> Json:
    return {"metadata": {"annotations": {key: value}}}


def evict(api: Api, pod: str) -> Json:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.rpartition("/")[2]}}
    return api.post(f"{pod}/eviction", eviction)


def render_event(node: str, **changes: object) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": new_name(), "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "nvidia.com/nodeagent",
        "reportingInstance": f"nodeagent-{OWN}",
        "action": "Sick",
        "reason": "Sick",
        "type": "Warning",
        "note": "GPU 3 is sick",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": "u"},
        **changes,
    }


def render_slice(node: str, driver: str = "gpu.nvidia.com") -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": new_name()}, "spec": spec}


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        (NODE, FINALIZERS),
        (NODE, OWNERS),
        (NODE, {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}),
        (NODE, {"spec": {"providerID": "cloud://x"}}),
        (f"{NODE}/status", {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
        (f"{NODE}/status", {"status": {"nodeInfo": NODE_INFO}}),
        (f"{NODE}/status", {"status": {"images": []}}),
        (f"{NODE}/status", {"status": {"volumesAttached": []}}),
        (f"{NODE}/status", {"status": {"volumesInUse": []}}),
        (f"{NODE}/status", {"status": {"phase": "Terminated"}}),
        (f"{NODE}/status", {"status": {"runtimeHandlers": [{"name": "x"}]}}),
        (f"{NODE}/status", {"status": {"features": {"supplementalGroupsPolicy": True}}}),
        (f"{NODE}/status", FINALIZERS),
    ],
    ids=lambda value: next(iter(next(iter(value.values())))) if isinstance(value, dict) else value.rpartition("/")[2],
)
def test_a_node_is_what_its_kubelet_says(callers: Callers, path: str, patch: Json) -> None:
    """Nothing of it but labels, annotations, taints and conditions of GPUs is the agent's."""
    with pytest.raises(ApiRefused, match="nodeagent changes") as refusal:
        callers.agent.patch(path, patch)
    assert refusal.value.status == DENIED_BY_POLICY


def test_what_is_the_agents_on_its_node_is_taken(callers: Callers) -> None:
    """Beside fifty images and what else a kubelet says, within the cost that a policy may have."""
    condition = {"type": "nvidia.com/GPUReady", "status": "True", "reason": "r", "message": "m"}
    callers.agent.patch(f"{NODE}/status", {"status": {"conditions": [condition]}}, kind="strategic")
    labels = {
        "metadata": {"labels": {"nvidia.com/gpu.count": "8"}, "annotations": {"nvidia.com/gpu-fractions-bound": "{}"}}
    }
    callers.agent.patch(NODE, labels)
    foreign = callers.admin.read_node(OWN)["spec"]["taints"]
    taint = {"key": "nvidia.com/starting", "effect": "NoSchedule"}
    callers.agent.patch(NODE, {"spec": {"taints": [taint, *foreign]}})
    found = callers.admin.read_node(OWN)
    assert {each["type"] for each in found["status"]["conditions"]} == {"Ready", "nvidia.com/GPUReady"}
    assert found["metadata"]["labels"]["nvidia.com/gpu.count"] == "8"
    callers.agent.patch(NODE, {"spec": {"taints": foreign}})


@pytest.mark.usefixtures("whole_policies")
def test_labels_that_the_chart_configures_are_taken(api_server: Cluster, callers: Callers, tmp_path: Path) -> None:
    """Those of `labels.static` and of `labels.compatibility` to the letter, and none that begins like them."""
    for key in CONFIGURED:
        assert find_refusal(partial(set_label, callers, key)) is None
    words = json.dumps({"static": {CONFIGURED[0]: "blue"}, "compatibility": ["gpu_manager"]})
    policy = render_objects("--set-json", f"config.labels={words}")["ValidatingAdmissionPolicy", "nodeagent-own-node"]
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy))
    api_server.run("kubectl", "apply", "-f", str(file))
    wait_until("the policy with its labels", lambda: find_refusal_of_label(callers, CONFIGURED[0]), timeout_seconds=30)
    set_label(callers, CONFIGURED[1])
    assert find_refusal(lambda: set_label(callers, f"{CONFIGURED[0]}s")) is None
    set_label(callers, CONFIGURED[0], None)


@pytest.fixture
def whole_policies(api_server: Cluster) -> Iterator[None]:
    """The policies as they are shipped, once more after the test."""
    yield
    api_server.run("kubectl", "apply", "-f", str(CHECKOUT / "deploy/rbac.yaml"))


def set_label(callers: Callers, key: str, value: str | None = "blue") -> None:
    callers.agent.patch(NODE, {"metadata": {"labels": {key: value}}})


def find_refusal_of_label(callers: Callers, key: str) -> str | None:
    try:
        set_label(callers, key)
    except ApiRefused as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "changes",
    [
        {"regarding": {"apiVersion": "v1", "kind": "Node", "name": OTHER, "uid": "u"}},
        {"regarding": ABOUT_POD},
        {"reportingInstance": f"nodeagent-{OTHER}"},
        {"reportingController": "kubelet"},
        {"regarding": ABOUT_POD, "reason": "RefusedPodDeleted", "reportingInstance": f"nodeagent-{OTHER}"},
    ],
    ids=["another node", "a pod", "another's instance", "the kubelet's name", "a pod in another's name"],
)
def test_events_are_about_the_own_node_in_the_own_name(callers: Callers, changes: Json) -> None:
    """Neither made nor changed to be about something else."""
    with pytest.raises(ApiRefused, match="writes events") as refusal:
        callers.agent.post(EVENTS, render_event(OWN, **changes))
    assert refusal.value.status == DENIED_BY_POLICY


def test_an_event_of_another_is_not_changed(callers: Callers) -> None:
    """An own one is counted on, as is one about a pod that is deleted; one of another node is not made a lie of."""
    callers.agent.post(EVENTS, render_event(OWN, regarding=ABOUT_POD, reason="RefusedPodDeleted"))
    own = callers.agent.post(EVENTS, render_event(OWN))["metadata"]["name"]
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    assert callers.agent.patch(f"{EVENTS}/{own}", series)["series"]["count"] == 2
    theirs = callers.admin.post(EVENTS, render_event(OTHER, reportingInstance=f"nodeagent-{OTHER}"))["metadata"]["name"]
    with pytest.raises(ApiRefused, match=f"nodeagent on node {OWN} writes events about that node and pods"):
        callers.agent.patch(f"{EVENTS}/{theirs}", series)
    with pytest.raises(ApiRefused, match="not bound to a node"):
        callers.unbound.post(EVENTS, render_event(OWN))


def test_slices_of_another_driver_on_the_own_node_stay(callers: Callers) -> None:
    """Neither made, nor changed, nor deleted; a slice of the own driver is."""
    with pytest.raises(ApiRefused, match="another driver"):
        callers.agent.post(SLICES, render_slice(OWN, "nic.example.com"))
    theirs = callers.admin.post(SLICES, render_slice(OWN, "nic.example.com"))
    path = f"{SLICES}/{theirs['metadata']['name']}"
    theirs["spec"]["pool"]["generation"] = 2
    for request in (lambda: callers.agent.put(path, theirs), lambda: callers.agent.delete(path)):
        with pytest.raises(ApiRefused, match="another driver"):
            request()
    own = callers.agent.post(SLICES, render_slice(OWN))["metadata"]["name"]
    callers.agent.delete(f"{SLICES}/{own}")
    assert callers.admin.find(f"{SLICES}/{own}") is None


@pytest.mark.parametrize(
    "patch", [FINALIZERS, OWNERS, {"metadata": {"labels": {"a": "b"}}}], ids=["finalizer", "owner", "label"]
)
@pytest.mark.parametrize("who", ["agent", "extender"])
def test_nothing_of_a_pod_but_choices_is_written(callers: Callers, who: str, patch: Json) -> None:
    """A made-up owner would have the garbage collector delete the pod, a made-up finalizer would keep it."""
    pod = make_pod(callers.admin, OWN if who == "agent" else "")
    caller = callers.agent if who == "agent" else callers.extender
    caller.patch(pod, annotate("tencent.com/predicate-node", "x"))
    with pytest.raises(ApiRefused, match="changes nothing of a pod but annotations") as refusal:
        caller.patch(pod, patch)
    assert refusal.value.status == DENIED_BY_POLICY
    found = callers.admin.get(pod)["metadata"]
    assert (found.get("finalizers"), found.get("ownerReferences"), found.get("labels")) == (None, None, None)


def test_evictions_spare_the_clusters_own_pods(callers: Callers) -> None:
    """What a policy can hold of evictions: it is not shown the pod, and so not its node."""
    for namespace in ("kube-system", NAMESPACE):
        pod = make_pod(callers.admin, OWN, namespace=namespace)
        with pytest.raises(ApiRefused, match=f"nodeagent evicts no pods of {namespace}"):
            evict(callers.agent, pod)
    pod = make_pod(callers.admin, OWN)
    with pytest.raises(ApiRefused, match="not bound to a node"):
        evict(callers.unbound, pod)
    assert evict(callers.agent, pod)["status"] == "Success"


def refuse_pod(callers: Callers, status: Json, *, node: str = OWN, owner: Json = CONTROLLER) -> str:
    """A pod as a kubelet leaves it."""
    pod = make_pod(callers.admin, node)
    callers.admin.patch(pod, {"metadata": {"ownerReferences": [owner]}})
    callers.admin.patch(f"{pod}/status", {"status": status})
    return pod


def render_container(**state: Json) -> Json:
    return {"containerStatuses": [{"name": "main", "image": "none", "imageID": "", "state": state}]}


PENDING = {"phase": "Pending"} | render_container(waiting={"reason": "x", "message": "PreStartContainer rpc failed"})


def test_pods_that_their_node_refused_are_deleted(callers: Callers) -> None:
    """By the agent of that node, where their controller makes others; one that waits has its grace."""
    failed, pending = (refuse_pod(callers, status) for status in (REFUSED, PENDING))
    for pod in (failed, pending):
        callers.agent.delete(pod)
    assert callers.admin.find(failed) is None
    assert "deletionTimestamp" in callers.admin.get(pending)["metadata"]


@pytest.mark.parametrize(
    ("reason", "status", "where"),
    [
        ("only pods of its own node", REFUSED, {"node": OTHER}),
        ("only pods whose controller makes another", REFUSED, {"owner": OWNER}),
        ("only pods whose controller makes another", REFUSED, {"owner": CONTROLLER | {"kind": "DaemonSet"}}),
        ("only pods that their node refused", REFUSED | {"reason": "Evicted"}, {}),
        ("only pods that their node refused", PENDING | {"phase": "Running"}, {}),
        ("only pods that their node refused", {"phase": "Pending"}, {}),
        ("no pod with a container that has started", REFUSED | render_container(terminated={"exitCode": 1}), {}),
    ],
)
def test_no_other_pod_is_deleted(callers: Callers, reason: str, status: Json, where: Json) -> None:
    pod = refuse_pod(callers, status, **where)
    with pytest.raises(ApiRefused, match=f"nodeagent deletes {reason}"):
        callers.agent.delete(pod)


def test_requests_of_agents_have_a_share_of_the_api_server_of_their_own(api_server: Cluster, callers: Callers) -> None:
    """Their flow schema is taken before that of all service accounts, as the server itself counts."""

    def find_other_flow() -> str | None:
        before = count_dispatched(api_server)
        callers.agent.read_node(OWN)
        return None if count_dispatched(api_server) > before else "the request went by another flow schema"

    # The server takes up a new one some time after it was made.
    wait_until("the flow schema", find_other_flow, timeout_seconds=30)


def count_dispatched(api_server: Cluster) -> int:
    """Requests that the server carried out by the agents' flow schema and at its level."""
    name = "apiserver_flowcontrol_dispatched_requests_total"
    found = [
        float(line.rpartition(" ")[2])
        for line in api_server.run("kubectl", "get", "--raw", "/metrics").splitlines()
        if line.startswith(name) and 'flow_schema="nodeagent"' in line and 'priority_level="nodeagent"' in line
    ]
    return int(sum(found))


def test_pods_fit_the_pod_security_that_their_namespace_needs(callers: Callers) -> None:
    """Those off the nodes fit the strictest level, and the agent's the level that the manifests give its namespace."""
    admin = callers.admin
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    admin.post("/api/v1/namespaces", {"metadata": {"name": "s", "labels": level}})
    agent = pod_of(read_manifest())
    objects = render_objects("--set", "extender.enabled=true,clusterStatus.enabled=true")
    others = ("nodeagent-extender", "nodeagent-cluster-status")
    for account in ("nodeagent", *others):
        admin.post("/api/v1/namespaces/s/serviceaccounts", {"metadata": {"name": account}})
    shipped = read_objects(MANIFEST.read_text())["Namespace", NAMESPACE]["metadata"]
    admin.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": shipped["labels"]}})
    for name in others:
        try_pod(admin, "s", objects["Deployment", name]["spec"]["template"]["spec"])
    try_pod(admin, NAMESPACE, agent)
    with pytest.raises(ApiRefused, match='violates PodSecurity "restricted'):
        try_pod(admin, "s", agent)


def try_pod(admin: Api, namespace: str, spec: Json) -> None:
    """Have a pod admitted, which is then not stored."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": new_name()}, "spec": spec}
    admin.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
