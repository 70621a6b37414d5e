"""Slices on the real API server, read by the real scheduler, with the shipped rights and no others."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.integration.cluster.agent import NAMESPACE, SERVICE_ACCOUNT, AgentUnderTest, request_token
from tests.integration.cluster.api import Api, Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME, Layout
from tests.integration.cluster.making.setup import read_token
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

RIGHTS = CHECKOUT / "deploy" / "rbac-claims.yaml"
CLASSES = CHECKOUT / "deploy" / "deviceclasses.yaml"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRIVER = "gpu.nvidia.com"
GPU, MIG = "gpu.nvidia.com", "mig.nvidia.com"
WAIT_SECONDS = 30.0


@pytest.fixture
def rights(node: Cluster) -> Iterator[None]:
    """The rights and classes of claims; no slice outlives the scenario."""
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    yield
    node.run("kubectl", "delete", "--ignore-not-found", "-f", str(RIGHTS), "-f", str(CLASSES))
    for one in list_slices(node):
        node.api.delete(f"{SLICES}/{one['metadata']['name']}")


@pytest.fixture(autouse=True)
def _tidy(rights: None, node: Cluster, make_agent: MakeAgent) -> Iterator[None]:
    """Pods and claims go while the agent is there: who has a claim is not gone before it was put away."""
    yield
    Pods(node).delete_all()
    for one in node.api.get(CLAIMS)["items"]:
        node.api.delete(f"{CLAIMS}/{one['metadata']['name']}")


def settings(layout: Layout, **claims: Any) -> dict[str, dict[str, Any]]:
    places = {"plugins_dir": str(layout.kubelet / "plugins"), "registry_dir": str(layout.kubelet / "plugins_registry")}
    return {
        "claims": {"enabled": True, **places, **claims},
        "doors": {"rules": [{"gpus": ["all"], "door": "claims"}]},
        "mig": {"manage": bool(claims.get("mig_on_demand"))},
    }


def list_slices(node: Cluster) -> list[Json]:
    found = node.api.get(SLICES, fieldSelector=f"spec.driver={DRIVER},spec.nodeName={NODE_NAME}")
    return list(found["items"])


def devices_of(node: Cluster) -> dict[str, Json]:
    return {one["name"]: one for found in list_slices(node) for one in found["spec"].get("devices") or ()}


def wait_devices(node: Cluster, count: int) -> dict[str, Json]:
    def probe() -> str | None:
        found = len(devices_of(node))
        return None if found == count else f"{found} devices"

    wait_until(f"{count} devices in slices", probe, timeout_seconds=WAIT_SECONDS)
    return devices_of(node)


def taints_of(node: Cluster, device: str) -> dict[str, str]:
    found = devices_of(node).get(device, {}).get("taints") or ()
    return {one["key"].rpartition("/")[2]: one["effect"] for one in found}


def ask(name: str, *requests: Mapping[str, Any], match: str = "") -> Json:
    """A claim: requests by class with what else they say, and what all devices must have in common."""
    asked = [
        {"name": f"r{number}", "exactly": {"deviceClassName": GPU, **one}}
        for number, one in enumerate(requests or ({},))
    ]
    devices: Json = {"requests": asked}
    if match:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/{match}"}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def cel(*expressions: str) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": one}} for one in expressions]}


def on(uuid: str) -> str:
    """Of this GPU alone, itself or a part of it."""
    has = f"device.attributes['{DRIVER}']"
    return f"{has}.type == 'gpu' ? {has}.uuid == '{uuid}' : {has}.parentUUID == '{uuid}'"


def request(node: Cluster, pods: Pods, claim: Json) -> str:
    """A claim, and a pod that wants it and waits for a file that never comes: this is about the scheduler alone."""
    name = str(node.api.post(CLAIMS, claim)["metadata"]["name"])
    wanted = {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}
    pods.create(render_pod(name, spec={**wanted, "volumes": [{"name": "never", "configMap": {"name": "never"}}]}))
    return name


def results_of(node: Cluster, name: str) -> list[Json]:
    allocation = (node.api.get(f"{CLAIMS}/{name}").get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def wait_given(node: Cluster, pods: Pods, name: str) -> list[str]:
    """What the scheduler gave to this claim."""

    def probe() -> str | None:
        return None if results_of(node, name) else f"nothing; {'; '.join(pods.read_events(name))}"

    wait_until(f"claim {name} to be allocated", probe, timeout_seconds=WAIT_SECONDS)
    return [one["device"] for one in results_of(node, name)]


def wait_refused(node: Cluster, pods: Pods, name: str) -> None:
    """The scheduler says that the pod has no place."""

    def probe() -> str | None:
        said = "; ".join(pods.read_events(name))
        return None if "FailedScheduling" in said else f"nothing yet; {said}"

    wait_until(f"{name} to be refused a place", probe, timeout_seconds=WAIT_SECONDS)
    assert results_of(node, name) == []


def versions(node: Cluster) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in list_slices(node)}


def list_generations(node: Cluster) -> list[int]:
    return [one["spec"]["pool"]["generation"] for one in list_slices(node)]


@pytest.mark.every_version
def test_slices_appear_stay_as_they_are_and_are_put_back(node: Cluster, make_agent: MakeAgent) -> None:
    """All eight GPUs in one slice that goes with its node; deleted by hand or with all others it comes again."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout))
    found = wait_devices(node, 8)
    assert sorted(found) == [f"gpu-{index}" for index in range(8)]
    (stored,) = list_slices(node)
    assert stored["spec"]["pool"] == {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1}
    (owner,) = stored["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", NODE_NAME, True)
    attributes = found["gpu-0"]["attributes"]
    assert (attributes["type"], attributes["productName"]) == ({"string": "gpu"}, {"string": "NVIDIA H100 80GB HBM3"})
    assert "version" in attributes["driverVersion"]
    before = versions(node)
    agent.restart()
    # An agent that has yet to see its slice would rightly begin with the first generation.
    wait_until(
        "the agent to know its slice",
        lambda: None if agent.get_json("/api/v1/slices")["slices"] else "it knows none",
        timeout_seconds=WAIT_SECONDS,
    )
    time.sleep(3)  # nothing can be awaited: what is tested is that nothing happens
    assert versions(node) == before
    node.api.delete(f"{SLICES}/{stored['metadata']['name']}")
    wait_devices(node, 8)
    assert versions(node) != before
    (again,) = list_generations(node)
    assert again > 1
    # As a kubelet does when it starts: with its own rights, whoever made them.
    kubelet = as_user(node, read_token(node.layout, "node"))
    kubelet.delete(f"{SLICES}?{urlencode({'fieldSelector': f'spec.nodeName={NODE_NAME}'})}")
    wait_until(
        f"a slice of a later generation than {again}",
        lambda: None if max(list_generations(node), default=0) > again else "none",
        timeout_seconds=WAIT_SECONDS,
    )
    assert len(devices_of(node)) == 8


def test_claims_select_by_memory_product_and_links(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Selectors as they are written for NVIDIA's driver; two devices that must reach one another over NVLink."""
    make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout))
    found = wait_devices(node, 8)
    product = f"device.attributes['{DRIVER}'].productName.lowerAscii().matches('^.*h100.*$')"
    memory = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"
    driver = f"device.attributes['{DRIVER}'].driverVersion.isGreaterThan(semver('1.0.0'))"
    given = wait_given(node, pods, request(node, pods, ask("chosen", cel(product, memory, driver))))
    assert given[0] in found
    two = wait_given(node, pods, request(node, pods, ask("linked", {"count": 2}, match="nvlinkGroup")))
    groups = {found[name]["attributes"]["nvlinkGroup"]["string"] for name in two}
    assert len(two) == 2
    assert len(groups) == 1
    too_large = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('400Gi')) >= 0"
    wait_refused(node, pods, request(node, pods, ask("too-large", cel(too_large))))


def test_claims_select_by_clique(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """GPUs of one NVLink domain across nodes say which."""
    make_agent(gpus="simulated:gb200-nvl72-node", settings=settings(node.layout))
    found = wait_devices(node, 4)
    cliques = {one["attributes"]["nvlinkClique"]["string"] for one in found.values()}
    (clique,) = cliques
    chosen = cel(f"device.attributes['{DRIVER}'].nvlinkClique == '{clique}'")
    given = wait_given(node, pods, request(node, pods, ask("clique", {"count": 4, **chosen}, match="nvlinkClique")))
    assert sorted(given) == sorted(found)


def test_a_taint_keeps_away_and_goes(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Within a second of the verdict; the claim is allocated when the GPU is well again."""
    agent = make_agent(gpus="simulated:t4", settings=settings(node.layout))
    (device,) = wait_devices(node, 1)
    agent.break_it("lost", "0")
    took = wait_taint(node, agent, device, is_there=True)
    assert took < 1.0, f"{took:.2f} s after the verdict"
    assert set(taints_of(node, device).values()) == {"NoSchedule"}
    name = request(node, pods, ask("waits"))
    wait_refused(node, pods, name)
    agent.break_it("clear")
    agent.run("gpu", "clear", "0", "--reason", "mended")
    wait_taint(node, agent, device, is_there=False)
    assert wait_given(node, pods, name) == [device]


def test_a_finding_can_end_the_pods_that_have_the_device(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """`NoExecute` by configuration; those on other devices stay."""
    rules = {"slices": {"taints": [{"finding": "lost", "effect": "NoExecute"}]}}
    agent = make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout, **rules))
    found = wait_devices(node, 8)
    first, second = (request(node, pods, ask(name)) for name in ("one", "other"))
    (hit,), (spared,) = wait_given(node, pods, first), wait_given(node, pods, second)
    uuid = found[hit]["attributes"]["uuid"]["string"]
    index = next(one["gpu"]["index"] for one in agent.get_json("/api/v1/gpus")["gpus"] if one["gpu"]["uuid"] == uuid)
    agent.break_it("lost", str(index))

    def probe() -> str | None:
        gone = node.api.find(f"/api/v1/namespaces/default/pods/{first}")
        return None if gone is None or gone["metadata"].get("deletionTimestamp") else str(taints_of(node, hit))

    wait_until(f"pod {first} to be evicted", probe, timeout_seconds=60)
    assert taints_of(node, spared) == {}
    assert not pods.read(second)["metadata"].get("deletionTimestamp")


def wait_taint(node: Cluster, agent: AgentUnderTest, device: str, *, is_there: bool) -> float:
    """How long after the agent's verdict the API server has the taint, or has it no more."""
    judged: list[float] = []

    def probe() -> str | None:
        (gpu,) = agent.get_json("/api/v1/gpus")["gpus"]
        is_bad = any(one["verdict"] not in ("healthy", "suspect") for one in gpu["health"])
        if is_bad is is_there and not judged:
            judged.append(time.monotonic())
        kept = [effect for effect in taints_of(node, device).values() if effect != "None"]
        return None if judged and bool(kept) is is_there else f"{gpu['health']}, {kept}"

    wait_until("the taint to follow the verdict", probe, timeout_seconds=90)
    return time.monotonic() - judged[0]


def test_parts_are_promised_by_counters(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Seven small parts of one GPU and no eighth, and no longer the GPU itself; another one is had whole."""
    make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout, mig_on_demand=True))
    found = wait_devices(node, 8 * 26)
    assert len(list_slices(node)) == 1 + 4
    first, second = (found[f"gpu-{index}"]["attributes"]["uuid"]["string"] for index in (0, 1))
    small = f"device.attributes['{DRIVER}'].profile == '1g.10gb'"
    seven = {"deviceClassName": MIG, "count": 7, **cel(small, on(first))}
    given = wait_given(node, pods, request(node, pods, ask("seven", seven)))
    assert sorted(given) == [f"gpu-0-mig-1g10gb-19-{start}" for start in range(7)]
    wait_refused(node, pods, request(node, pods, ask("eighth", {"deviceClassName": MIG, **cel(small, on(first))})))
    wait_refused(node, pods, request(node, pods, ask("whole", cel(on(first)))))
    wait_given(node, pods, request(node, pods, ask("another", cel(on(second)))))


def test_claims_share_a_gpu_by_memory_and_cores(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Three on one GPU, each with a share of its own; a fourth that does not fit; who names nothing wants all of it."""
    make_agent(gpus="simulated:t4", settings=settings(node.layout, shares=True))
    (device,) = wait_devices(node, 1)

    def share(name: str, memory: str, cores: str) -> Json:
        return ask(name, {"capacity": {"requests": {"memory": memory, "cores": cores}}})

    names = [f"share-{number}" for number in range(3)]
    for name in names:
        # One after the other: a scheduler that is still about to write one share has been seen to refuse the next that
        # fits beside it, and it looks again only when something changes.
        assert wait_given(node, pods, request(node, pods, share(name, "4Gi", "30"))) == [device]
    results = [results_of(node, name)[0] for name in names]
    assert len({one["shareID"] for one in results}) == 3
    assert all(one["consumedCapacity"] == {"memory": "4Gi", "cores": "30"} for one in results), results
    wait_refused(node, pods, request(node, pods, share("much-memory", "4Gi", "1")))
    wait_refused(node, pods, request(node, pods, share("many-cores", "1Gi", "11")))
    wait_refused(node, pods, request(node, pods, ask("all-of-it")))
    little = request(node, pods, ask("little", {"capacity": {"requests": {"memory": "500Mi"}}}))
    assert wait_given(node, pods, little) == [device]
    assert results_of(node, little)[0]["consumedCapacity"]["cores"] == "0"


@pytest.mark.parametrize(("share_by", "count"), [("2", 2), ("unlimited", 3)])
def test_claims_that_name_nothing_share_a_gpu_by_number_or_without_one(
    node: Cluster, pods: Pods, make_agent: MakeAgent, share_by: str, count: int
) -> None:
    make_agent(gpus="simulated:t4", settings=settings(node.layout, shares=True, share_by=share_by))
    (device,) = wait_devices(node, 1)
    for number in range(count):
        assert wait_given(node, pods, request(node, pods, ask(f"plain-{number}"))) == [device]
    if share_by.isdigit():
        wait_refused(node, pods, request(node, pods, ask("one-too-many")))


def test_pods_that_ask_in_the_old_way_are_served_by_claims(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """`nvidia.com/gpu` by the class, as a cluster moves from one way to the other."""
    node.api.patch(
        f"/apis/resource.k8s.io/v1/deviceclasses/{GPU}", {"spec": {"extendedResourceName": "nvidia.com/gpu"}}
    )
    make_agent(gpus="simulated:dgx-h100", settings=settings(node.layout) | {"device_plugin": {"enabled": False}})
    found = wait_devices(node, 8)
    pods.create(render_pod("old-way", limits={"nvidia.com/gpu": 2}))
    pod = pods.wait_for(
        "old-way", "given a claim", lambda one: one["status"].get("extendedResourceClaimStatus") is not None
    )
    name = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    given = wait_given(node, pods, name)
    assert len(given) == 2
    assert set(given) <= set(found)


def as_user(node: Cluster, token: str) -> Api:
    return Api(node.state.ports.api, node.layout.certs / "ca.crt", token=token)


def render_slice(name: str, spec: Mapping[str, Any]) -> Json:
    content = {"driver": DRIVER, "pool": {"name": NODE_NAME, "generation": 1, "resourceSliceCount": 1}, "devices": []}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {**content, **spec},
    }


FOREIGN: Sequence[tuple[str, Mapping[str, Any], str]] = (
    ("of another node", {"nodeName": "other"}, "another node"),
    ("of all nodes", {"allNodes": True}, "another node"),
    (
        "of a pool of another name",
        {"nodeName": NODE_NAME, "pool": {"name": "x", "generation": 1, "resourceSliceCount": 1}},
        "one pool",
    ),
)


def test_an_agent_is_held_to_the_slices_of_its_own_node(node: Cluster) -> None:
    """Made, changed and deleted: its own yes, others no; and none with a token that is bound to no node."""
    agent = as_user(node, request_token(node))
    wait_policy(node, agent)
    own = agent.post(SLICES, render_slice("own", {"nodeName": NODE_NAME}))
    own["spec"]["pool"]["generation"] = 2
    assert agent.put(f"{SLICES}/own", own)["spec"]["pool"]["generation"] == 2
    agent.delete(f"{SLICES}/own")
    for what, spec, said in FOREIGN:
        with pytest.raises(ApiRefused, match=said):
            agent.post(SLICES, render_slice("foreign", spec))
        assert node.api.find(f"{SLICES}/foreign") is None, what
    node.api.post(SLICES, render_slice("theirs", {"nodeName": "other"}))
    try:
        theirs = node.api.get(f"{SLICES}/theirs")
        theirs["spec"]["pool"]["generation"] = 9
        with pytest.raises(ApiRefused, match="another node"):
            agent.put(f"{SLICES}/theirs", theirs)
        with pytest.raises(ApiRefused, match="another node"):
            agent.delete(f"{SLICES}/theirs")
    finally:
        node.api.delete(f"{SLICES}/theirs")
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    unbound = as_user(node, str(node.api.post(path, {"spec": {}})["status"]["token"]))
    with pytest.raises(ApiRefused, match="not bound to a node"):
        unbound.post(SLICES, render_slice("own", {"nodeName": NODE_NAME}))


def wait_policy(node: Cluster, agent: Api) -> None:
    """A policy counts some time after it was made."""

    def probe() -> str | None:
        try:
            agent.post(SLICES, render_slice("probe", {"nodeName": "other"}))
        except ApiRefused as error:
            return None if "another node" in str(error) else str(error)
        node.api.delete(f"{SLICES}/probe")
        return "not in force yet"

    wait_until("the policy to be in force", probe, timeout_seconds=WAIT_SECONDS)
