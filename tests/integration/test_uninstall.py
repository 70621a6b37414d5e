"""`nodeagent uninstall` on a real node: what the agent wrote in the cluster and on the host is gone."""

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.edge.host.vgpu.layout import LIMITS_BYTES
from nodeagent.model.cluster import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from nodeagent.rules.fractions.published import ANNOTATION
from tests.integration.claims import (
    API,
    CLAIMS,
    CLASSES,
    DRIVER,
    RIGHTS,
    VERSION,
    make_claim,
    prepared,
    wait_none,
)
from tests.integration.claims import render as render_claiming
from tests.integration.claims import settings as settings_of_claims
from tests.integration.cluster.agent import COMMAND
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.mps import WORK, Node, make_node, wait_daemons, wait_ready
from tests.integration.test_fractions import CORE, PROFILE, read_bindings, render_part
from tests.integration.test_fractions import SETTINGS as PARTS

pytestmark = pytest.mark.e2e


def test_uninstall_leaves_the_node_as_it_was(node: Cluster, make_agent: MakeAgent) -> None:
    """Under the shipped rights, labels, condition and files of the agent go; the node's own stay."""
    before = node.api.read_node()
    agent = make_agent(settings={"labels": {"hold_seconds": 0}})

    def labelled() -> str | None:
        found = node.api.read_node()
        conditions = {each["type"] for each in found["status"]["conditions"]}
        ready = "nvidia.com/GPUReady" in conditions and "nvidia.com/gpu.count" in found["metadata"]["labels"]
        return None if ready else f"{conditions} {found['metadata']['labels']}"

    wait_until("labels and condition", labelled, timeout_seconds=30)
    agent.stop()
    command = [COMMAND[0], "uninstall", "--config", str(agent.config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = node.api.read_node()
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert "nvidia.com/GPUReady" not in {each["type"] for each in after["status"]["conditions"]}
    assert not (node.layout.agent / "state").exists()
    assert not list(node.layout.cdi_dirs[1].glob("nvidia*"))


def describe_node(node: Cluster) -> dict[str, Any]:
    """What an agent could have written on the node object; a resource stays with the kubelet until that starts anew."""
    found = node.api.read_node()
    return {
        "labels": found["metadata"]["labels"],
        "annotations": found["metadata"].get("annotations", {}),
        "taints": found["spec"].get("taints", []),
        "conditions": {each["type"] for each in found["status"]["conditions"]},
    }


def test_parts_and_layouts_leave_nothing_and_a_running_container_nothing_lacks(
    node: Cluster, make_agent: MakeAgent, pods: Pods
) -> None:
    """What the agent wrote for parts and MIG goes; a container with a part keeps its files while it runs."""
    before, state = describe_node(node), node.layout.agent / "state"
    settings = {**PARTS, "labels": {"hold_seconds": 0}, "mig": {"manage": True}}
    agent = make_agent(gpus=PROFILE, settings=settings)
    node.run("kubectl", "label", "node", NODE_NAME, f"{MIG_CONFIG_LABEL}=all-disabled")
    node.wait_count(CORE, 400)
    pods.run(render_part("lasts", 30, 32))

    def written() -> str | None:
        seen = describe_node(node)
        is_withdrawn = MIG_STATE_LABEL in seen["labels"] and ANNOTATION in seen["annotations"]
        return None if is_withdrawn and "lasts" in read_bindings(agent) else f"{seen}"

    wait_until("what parts and layouts have written", written, timeout_seconds=60)
    agent.stop()
    node.run("kubectl", "label", "node", NODE_NAME, f"{MIG_CONFIG_LABEL}-")
    command = [COMMAND[0], "uninstall", "--config", str(agent.config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "default/lasts (main) runs with it" in done.stdout
    assert describe_node(node) == before, done.stdout
    assert int(pods.exec("lasts", "sh", "-c", "wc -c < /run/nodeagent/vgpu/limits")) == LIMITS_BYTES
    assert {path.name for path in state.iterdir()} == {"parts"}, done.stdout
    pods.delete("lasts")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not state.exists(), done.stdout
    assert not list(node.layout.cdi_dirs[1].glob("*")), done.stdout


@pytest.fixture
def mps() -> Iterator[Node]:
    with make_node() as made:
        yield made


@pytest.fixture
def claiming(node: Cluster, pods: Pods) -> Iterator[None]:
    """Rights and classes for claims; what the scenario leaves of claims is gone after it."""
    node.run("kubectl", "apply", "-f", str(RIGHTS), "-f", str(CLASSES))
    yield
    pods.delete_all()
    for one in node.api.get(CLAIMS)["items"]:
        node.api.delete(f"{CLAIMS}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", "-f", str(RIGHTS), "-f", str(CLASSES))


def list_slices(node: Cluster) -> list[str]:
    """What schedulers are told of the devices of our driver."""
    found = node.api.get(f"{API}/resourceslices")["items"]
    return [one["metadata"]["name"] for one in found if one["spec"]["driver"] == DRIVER]


def list_files(node: Cluster, mps: Node) -> set[str]:
    """Where the kubelet's plugins for claims, CDI specifications and MPS daemons are."""
    plugins = (node.layout.kubelet / "plugins", node.layout.kubelet / "plugins_registry")
    places = (*plugins, *node.layout.cdi_dirs, mps.root)
    found = {str(path) for place in places for path in place.rglob("*")}
    return found | ({str(mps.root)} if mps.root.exists() else set())


@pytest.mark.usefixtures("claiming")
def test_claims_and_daemons_leave_nothing(node: Cluster, make_agent: MakeAgent, pods: Pods, mps: Node) -> None:
    """Claims, one through a daemon, and shares of GPUs with daemons of their own; the agent is killed in the end."""
    own = str(node.layout.kubelet / "plugins" / DRIVER)  # an agent that has stopped leaves it to the next
    before, files = describe_node(node), list_files(node, mps) - {own}
    assert not list_slices(node)
    of_mps = mps.settings()
    settings = {
        **settings_of_claims(node.layout),
        **of_mps,
        "mps": {**of_mps["mps"], "claims": True},
        "doors": {"rules": [{"gpus": ["0", "1", "2", "3"], "door": "claims"}]},
        "labels": {"hold_seconds": 0},
    }
    agent = make_agent(gpus=PROFILE, settings=settings)
    wait_ready(agent, 4)

    def offered() -> str | None:
        registered = agent.get_json("/api/v1/claims")["standing"]["registered"]
        return None if registered and list_slices(node) else f"registered: {registered}"

    wait_until("slices, and the driver registered", offered, timeout_seconds=30)
    sharing = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 40}}
    parameters = {"apiVersion": VERSION, "kind": "GpuConfig", "sharing": sharing}
    claims = [make_claim(node, "through", parameters=parameters), make_claim(node, "whole")]
    through = render_claiming("through", claim=claims[0])
    mps.mount(through)
    through["spec"]["containers"][0]["command"] = list(WORK)
    names = [pods.run(pod) for pod in (through, render_claiming("whole", claim=claims[1]), mps.render("share"))]
    wait_ready(agent, 5)
    assert set(prepared(agent)) == set(claims)
    assert len(list(node.layout.cdi_dirs[1].glob("k8s.gpu.nvidia.com-claim_*"))) == len(claims)
    pods.delete(*names)
    for claim in claims:
        node.api.delete(f"{CLAIMS}/{claim}")
    wait_none(agent)
    wait_daemons(agent, "the daemon of the claim to end", lambda found: len(found) == 4)
    agent.stop(signal.SIGKILL)
    assert list_slices(node)
    assert list_files(node, mps) > files, "sockets and daemons are left for the uninstall"
    command = [COMMAND[0], "uninstall", "--config", str(agent.config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert describe_node(node) == before, done.stdout
    assert list_slices(node) == [], done.stdout
    assert list_files(node, mps) == files, done.stdout
    assert not (node.layout.agent / "state").exists(), done.stdout


@pytest.mark.usefixtures("claiming")
def test_a_pod_with_a_claim_starts_its_container_again_after_an_uninstall(
    node: Cluster, make_agent: MakeAgent, pods: Pods
) -> None:
    """The runtime finds the devices as long as the pod is there; an agent that comes back puts the claim away."""
    settings = {**settings_of_claims(node.layout), "labels": {"hold_seconds": 0}}
    agent = make_agent(gpus=PROFILE, settings=settings)
    claim = make_claim(node, "whole")
    pod = render_claiming("lasts", claim=claim)
    pod["spec"]["restartPolicy"] = "Always"
    pods.run(pod)
    assert set(prepared(agent)) == {claim}
    agent.stop()
    command = [COMMAND[0], "uninstall", "--config", str(agent.config_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "claim default/whole is used by default/lasts" in done.stdout
    node.run("crictl", "stop", "--timeout", "0", pods.container_id("lasts"))

    def started_again() -> str | None:
        (status,) = node.api.get("/api/v1/namespaces/default/pods/lasts")["status"]["containerStatuses"]
        return None if status["restartCount"] and "running" in status["state"] else str(status)

    wait_until("the container to run again", started_again, timeout_seconds=60)
    again = make_agent(gpus=PROFILE, settings=settings)
    assert set(prepared(again)) == {claim}
    pods.delete("lasts")
    node.api.delete(f"{CLAIMS}/{claim}")
    wait_none(again)
    again.stop()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (node.layout.agent / "state").exists(), done.stdout
