"""Labels, condition, taint and pauses on the real API server, with the shipped rights and no others."""

import json
import re
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from nodeagent.cli.uninstall.cluster import remove_from_cluster
from nodeagent.cli.uninstall.steps import Step
from nodeagent.config.load import load_settings
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

PRODUCT, COUNT = "nvidia.com/gpu.product", "nvidia.com/gpu.count"
NODE = f"/api/v1/nodes/{NODE_NAME}"
QUICK = {"labels": {"hold_seconds": 0}}
Json = dict[str, Any]


def labels_of(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.api.read_node()["metadata"].get("labels", {})
    return found


def condition_of(cluster: Cluster) -> Json:
    conditions = cluster.api.read_node()["status"]["conditions"]
    return next((each for each in conditions if each["type"] == "nvidia.com/GPUReady"), {})


def wait(what: str, is_so: Callable[[], object], *, timeout_seconds: float = 30) -> None:
    wait_until(what, lambda: None if is_so() else "not yet", timeout_seconds=timeout_seconds)


def select(cluster: Cluster, selector: str) -> list[str]:
    answer = cluster.api.get("/api/v1/nodes", labelSelector=selector)
    return [each["metadata"]["name"] for each in answer["items"]]


@pytest.mark.every_version
def test_the_node_is_found_by_its_labels(node: Cluster, make_agent: MakeAgent) -> None:
    """People select nodes by model, count and presence; a label of somebody else stays."""
    node.api.patch(NODE, {"metadata": {"labels": {"team": "blue"}}})
    agent = make_agent(gpus="simulated:dgx-h100", settings=QUICK)
    wait("the labels", lambda: labels_of(node).get(COUNT) == "8")
    for selector in (
        f"{PRODUCT}=NVIDIA-H100-80GB-HBM3",
        f"{COUNT}=8,nvidia.com/mig.capable=true",
        "feature.node.kubernetes.io/pci-10de.present=true",
        "nvidia.com/gpu.present=true,team=blue",
    ):
        assert select(node, selector) == [NODE_NAME], selector
    wait("the condition", lambda: condition_of(node).get("status") == "True")
    managers = [each["manager"] for each in node.api.read_node()["metadata"]["managedFields"]]
    assert managers.count("nodeagent") == 2, "labels by apply, the condition by patch"
    agent.stop()
    noted = json.loads(agent.run("audit", "--json", "--of", "kubernetes"))
    assert {(each["name"], each["outcome"]) for each in noted} == {(NODE, "done"), (f"{NODE}/status", "done")}


QUERY = re.compile(r"kubectl get nodes -l '?([^'#\n]+?)'?\s+#")
NOT_FOUND = "nvidia.com/gpu.present=true,!nvidia.com/gpu.count"


def test_the_documented_queries_find_the_node(node: Cluster, make_agent: MakeAgent) -> None:
    """Each selector in docs/labels.md is run as it stands there; the one for a card without a driver finds nothing."""
    queries = QUERY.findall((CHECKOUT / "docs" / "labels.md").read_text().replace("','", ",").replace(",'!", ",!"))
    assert NOT_FOUND in queries
    make_agent(gpus="simulated:gb200-nvl72-node", settings=QUICK)
    wait("the labels", lambda: COUNT in labels_of(node))
    labels = labels_of(node)
    for query in queries:
        here = query.replace("NVIDIA-H100-80GB-HBM3", labels[PRODUCT]).replace(
            "gpu.count=8", f"gpu.count={labels[COUNT]}"
        )
        assert select(node, here) == ([] if query == NOT_FOUND else [NODE_NAME]), here


def test_a_node_that_stays_broken_is_given_up_where_autoscalers_look(node: Cluster, make_agent: MakeAgent) -> None:
    """Condition and annotation say so after the attempts that are allowed, until the driver answers again."""
    settings = {"kubernetes": {"terminal_after_attempts": 1}, "driver": {"revalidate_seconds": 5}}
    agent = make_agent(settings=settings)
    wait("the node to be ready", lambda: condition_of(node).get("status") == "True")
    agent.break_it("hang", "all", "forever")
    wait("the node to be given up", lambda: condition_of(node).get("reason") == "GPUsFailedForGood", timeout_seconds=90)
    lost = "nvidia.com/gpu.terminal-failure"
    wait("the annotation", lambda: lost in node.api.read_node()["metadata"].get("annotations", {}))
    agent.break_it("clear")
    wait("the node to be ready again", lambda: condition_of(node).get("status") == "True", timeout_seconds=90)
    wait("the annotation to go", lambda: lost not in node.api.read_node()["metadata"].get("annotations", {}))


def test_labels_that_are_no_longer_true_go(node: Cluster, make_agent: MakeAgent) -> None:
    """After a restart with another node under it, exactly the new labels are there."""
    first = make_agent(gpus="simulated:dgx-h100", settings=QUICK)
    wait("the labels", lambda: labels_of(node).get(COUNT) == "8")
    timestamp = labels_of(node)["nvidia.com/gfd.timestamp"]
    assert first.stop() == 0
    assert labels_of(node)[COUNT] == "8", "labels outlive the agent"
    second = make_agent(gpus="simulated:a100-80gb-mig", settings=QUICK | {"device_plugin": {"mig_strategy": "mixed"}})
    wait("the new labels", lambda: labels_of(node).get("nvidia.com/mig-1g.10gb.count") == "9")
    assert labels_of(node)["nvidia.com/gfd.timestamp"] >= timestamp
    assert second.stop() == 0
    make_agent(gpus="simulated:t4", settings=QUICK)
    wait("no MIG labels", lambda: not any(key.startswith("nvidia.com/mig-") for key in labels_of(node)))


def test_a_contested_label_is_reported_and_not_fought(node: Cluster, make_agent: MakeAgent) -> None:
    """Somebody else's value stays; the agent says so, and takes the label back once it is given up."""
    agent = make_agent(gpus="simulated:t4", settings=QUICK)
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1")
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: "5"}}})
    wait("the agent to see it", lambda: agent.get_json("/api/v1/labels")["applied"].get(COUNT) == "5")
    assert labels_of(node)[COUNT] == "5"
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1")


@pytest.mark.every_version
def test_the_startup_taint_goes_once_the_gpus_are_ready(node: Cluster, make_agent: MakeAgent) -> None:
    """The configured taint is taken off, and no other."""
    taints = [
        {"key": "nvidia.com/gpu-starting", "effect": "NoSchedule"},
        {"key": "team", "effect": "PreferNoSchedule", "value": "blue"},
    ]
    node.api.patch(NODE, {"spec": {"taints": taints}})
    make_agent(settings={"kubernetes": {"startup_taint": "nvidia.com/gpu-starting:NoSchedule"}})
    wait("the taint to go", lambda: [each["key"] for each in node.api.read_node()["spec"]["taints"]] == ["team"])


def test_a_pause_releases_the_driver_and_its_end_takes_it_back(node: Cluster, make_agent: MakeAgent) -> None:
    """The label of the operator's driver upgrade is obeyed within seconds, and told as the condition's reason."""
    make_agent(gpus="simulated:t4")
    wait("the node to be ready", lambda: condition_of(node).get("status") == "True")
    key = "nvidia.com/gpu.deploy.device-plugin"
    node.api.patch(NODE, {"metadata": {"labels": {key: "paused-for-driver-upgrade"}}})
    wait("the pause", lambda: condition_of(node).get("reason") == "Paused")
    node.api.patch(NODE, {"metadata": {"labels": {key: "true"}}})
    wait("the node to be ready again", lambda: condition_of(node).get("status") == "True")


def test_a_mig_change_by_another_manager_is_lived_through(node: Cluster, make_agent: MakeAgent) -> None:
    """Asked for and not there: said. Paused: handles released. Done: the new devices are advertised and labelled."""
    agent = make_agent(gpus="simulated:a100-80gb-mig", settings=QUICK | {"device_plugin": {"mig_strategy": "mixed"}})
    wait("the node to be ready", lambda: condition_of(node).get("status") == "True")
    wanted, state, pause = "nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/gpu.deploy.device-plugin"

    def tell(**labels: str) -> None:
        keys = {"wanted": wanted, "state": state, "pause": pause}
        node.api.patch(NODE, {"metadata": {"labels": {keys[key]: value for key, value in labels.items()}}})

    def says(what: str) -> bool:
        return what in agent.get("/api/v1/events")[1] or what in agent.read_log(200)

    tell(wanted="all-1g.10gb")
    wait("the wish to be judged", lambda: says('"standing": "unmet"'))
    wait("an event", lambda: "MIGConfigNotApplied" in {each["reason"] for each in list_events(node)})
    tell(state="pending", pause="paused-for-mig-change")
    wait("the pause", lambda: condition_of(node).get("reason") == "Paused")
    assert says('"standing": "changing"')
    for index in range(len(agent.get_json("/api/v1/gpus")["gpus"])):
        agent.break_it("mig", str(index), *["1g.10gb"] * 7)
    tell(state="success", pause="true")
    wait("the node to be ready again", lambda: condition_of(node).get("status") == "True")
    wait("the new layout", lambda: says('"standing": "met"'))
    keys = {key for key in labels_of(node) if key.startswith("nvidia.com/mig-") and key.endswith(".count")}
    assert keys == {"nvidia.com/mig-1g.10gb.count"}
    assert labels_of(node)[state] == "success", "the state is the manager's to write"


def list_events(cluster: Cluster) -> list[Json]:
    found: list[Json] = cluster.api.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return found


def test_an_outage_loses_nothing(node: Cluster, make_agent: MakeAgent) -> None:
    """While the API server is away the agent serves on; what changed meanwhile is on the node once it is back."""
    agent = make_agent(settings=QUICK | {"kubernetes": {"catch_up_max_seconds": 1}})
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1")
    node.begin_outage()
    wait("the outage to be seen", lambda: "api_server_away" in agent.read_log(200))
    assert agent.get("/readyz")[0] == 200
    node.end_outage()
    node.api.patch(NODE, {"metadata": {"labels": {COUNT: None}}})
    wait("the label to come back", lambda: labels_of(node).get(COUNT) == "1", timeout_seconds=120)


def capacity_of(cluster: Cluster) -> str:
    return str(cluster.api.read_node()["status"]["capacity"].get("nvidia.com/gpu", "0"))


def test_the_label_switches_the_configuration(node: Cluster, make_agent: MakeAgent) -> None:
    """Another sharing by one label, without the agent's restart or a gap in capacity; a wrong name changes nothing."""
    configs = node.layout.agent / "configs"
    configs.mkdir()
    (configs / "plain").write_text("{}")
    (configs / "shared").write_text(
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
    )
    settings = QUICK | {"device_plugin": {"config_dir": str(configs), "default_config": "plain"}}
    agent = make_agent(settings=settings)
    wait("the labels", lambda: labels_of(node).get("nvidia.com/gpu.replicas") == "1")
    key = "nvidia.com/device-plugin.config"
    wait("the capacity", lambda: capacity_of(node) == "1")
    node.api.patch(NODE, {"metadata": {"labels": {key: "shared"}}})
    seen: set[str] = set()

    def follows() -> bool:
        seen.add(capacity_of(node))
        return "4" in seen

    wait("the kubelet to follow", follows)
    assert seen <= {"1", "4"}, "no moment without the resource"
    wait("the labels to follow", lambda: labels_of(node).get("nvidia.com/gpu.replicas") == "4")
    node.api.patch(NODE, {"metadata": {"labels": {key: "typo"}}})
    wait("the agent to say so", lambda: "named-configuration-unknown" in agent.get("/api/v1/conditions")[1])
    assert labels_of(node)["nvidia.com/gpu.replicas"] == "4"


def test_devices_are_advertised_without_an_api_server(node: Cluster, make_agent: MakeAgent) -> None:
    """An agent that cannot reach the API server from its first second on serves the kubelet all the same."""
    agent = make_agent(settings={"kubernetes": {"kubeconfig": str(node.layout.agent / "absent")}})
    wait("the kubelet to know", lambda: node.api.read_node()["status"]["capacity"].get("nvidia.com/gpu") == "1")
    wait("the log to say so", lambda: "api_server_away" in agent.read_log(200))
    assert COUNT not in labels_of(node)


def test_nothing_of_ours_stays_on_the_node(node: Cluster, make_agent: MakeAgent) -> None:
    """What an uninstall does in the cluster: our labels and our condition go, those of others stay."""
    node.api.patch(NODE, {"metadata": {"labels": {"team": "blue"}}})
    agent = make_agent(settings=QUICK)
    wait("the labels", lambda: labels_of(node).get(COUNT) == "1")
    wait("the condition", lambda: condition_of(node).get("status") == "True")
    assert agent.stop() == 0
    settings = load_settings(agent.config_file, environ={}).settings
    outcomes = anyio.run(lambda: remove_from_cluster(settings, {}, dry=False))
    assert {each.step for each in outcomes} == {Step.REMOVED}
    assert not [key for key in labels_of(node) if key.startswith(("nvidia.com/", "feature.node.kubernetes.io/"))]
    assert labels_of(node)["team"] == "blue"
    assert condition_of(node) == {}
