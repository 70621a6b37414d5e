"""Claims and pods that have them, on the real cluster: written, and held against what the agent says."""

from collections.abc import Mapping
from typing import Any

from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT, Layout
from tests.integration.cluster.pods import WAIT, render_pod
from tests.integration.cluster.processes import wait_until

RIGHTS = CHECKOUT / "deploy" / "rbac-claims.yaml"
CLASSES = CHECKOUT / "deploy" / "deviceclasses.yaml"
API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
TEMPLATES = f"{API}/namespaces/default/resourceclaimtemplates"
DRIVER = GPU = "gpu.nvidia.com"
MIG = "mig.nvidia.com"
TELL = f"env; {WAIT}"
VERSION = "resource.nvidia.com/v1beta1"


def settings(layout: Layout, **claims: Any) -> dict[str, dict[str, Any]]:
    places = {"plugins_dir": str(layout.kubelet / "plugins"), "registry_dir": str(layout.kubelet / "plugins_registry")}
    return {
        "claims": {"enabled": True, **places, **claims},
        "doors": {"rules": [{"gpus": ["all"], "door": "claims"}]},
        "kubelet": {"pod_resources_poll_seconds": 0.5},
        "journal": {"free_after_seconds": 2},
        "mig": {"manage": bool(claims.get("mig_on_demand"))},
    }


def ask(*requests: str, parameters: Json | None = None) -> Json:
    """What a claim asks for: a GPU for each of these names."""
    devices: Json = {"requests": [{"name": name, "exactly": {"deviceClassName": GPU}} for name in requests or ("gpu",)]}
    if parameters is not None:
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    return {"devices": devices}


def make_claim(node: Cluster, name: str, *requests: str, parameters: Json | None = None) -> str:
    """A claim that lives until it is deleted."""
    return post_claim(node, name, ask(*requests, parameters=parameters))


def post_claim(node: Cluster, name: str, spec: Json) -> str:
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
    return str(node.api.post(CLAIMS, document)["metadata"]["name"])


def make_template(node: Cluster, name: str = "each") -> str:
    """A template, by which each pod has a claim of its own."""
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": ask()},
    }
    return str(node.api.post(TEMPLATES, document)["metadata"]["name"])


def render(
    name: str, *, claim: str = "", template: str = "", containers: Mapping[str, str] | None = None, tell: str = TELL
) -> Json:
    """A pod with a claim, or with one made from a template; `containers` names the request that each of them has."""
    which = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    pod = render_pod(name, ("sh", "-c", tell), spec={"resourceClaims": [{"name": "gpus", **which}]})
    (first,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [
        {
            **first,
            "name": each,
            "resources": {"claims": [{"name": "gpus", **({"request": request} if request else {})}]},
        }
        for each, request in (containers or {"main": ""}).items()
    ]
    return pod


def told(node: Cluster, pod: str, container: str = "main") -> set[str]:
    lines = node.run("kubectl", "logs", pod, "-c", container).splitlines()
    return {line.partition("=")[2] for line in lines if line.startswith("NODEAGENT_SIMULATED_")}


def prepared(agent: AgentUnderTest) -> dict[str, Json]:
    """By the name of the claim what the agent says is ready."""
    return {one["claim"]["name"]: one for one in agent.get_json("/api/v1/claims")["prepared"]}


def check(node: Cluster, agent: AgentUnderTest, pod: str, claim: str = "") -> set[str]:
    """The container has the devices that the API server, the agent and its journal name; answers with them."""
    name = (
        claim
        or node.api.get(f"/api/v1/namespaces/default/pods/{pod}")["status"]["resourceClaimStatuses"][0][
            "resourceClaimName"
        ]
    )
    results = node.api.get(f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
    uuids = {f"gpu-{one['gpu']['minor']}": one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    meant = {uuids[one["device"]] for one in results}
    assert {one["uuid"] for one in prepared(agent)[name]["claim"]["devices"]} == meant
    assert told(node, pod) == meant
    return meant


def wait_none(agent: AgentUnderTest, seconds: float = 90.0) -> None:
    """Return when no claim is prepared any more."""
    wait_until(
        "all claims to be put away",
        lambda: ", ".join(left) if (left := sorted(prepared(agent))) else None,
        timeout_seconds=seconds,
    )
