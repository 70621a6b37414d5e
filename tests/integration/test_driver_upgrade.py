"""Upgrades of the driver on a real cluster: pods leave as their budgets allow, and new pods come to the new driver.

The driver is made up, a program stands for the installer, and the test plays the image of a driver's pod: it loads and
unloads the module. Budgets, evictions, labels, the kubelet's records and the scheduler's choices are real.
"""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_UPGRADE
from nodeagent.model.upgrades import UPGRADE_LABEL
from tests.component.upgrades.test_agent import INSTALLER, NEW, PROFILES
from tests.integration import claims
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME, Layout
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_cordon import list_conditions
from tests.integration.test_fractions import CORE, GPU, MEMORY
from tests.integration.test_mig import BUDGETS

OLD = "570.172.08"
RIGHTS = (claims.RIGHTS, claims.CLASSES, *(CHECKOUT / f"deploy/rbac-{name}.yaml" for name in ("mig", "repairs")))
EXPORTER = f"{DEPLOY_LABEL}dcgm-exporter"
BUDGET = "keep-train"
KINDS = ("plugin", "fraction", "claim")
WHOLE = 4
"""GPUs of the device plugin; two more are given in fractions, and two by claims."""
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def rights(node: Cluster, make_agent: MakeAgent) -> Iterator[None]:
    """The rights of an agent that upgrades drivers and prepares claims; all that a scenario made goes afterwards."""
    files = tuple(word for path in RIGHTS for word in ("-f", str(path)))
    node.run("kubectl", "apply", *files)
    yield
    Pods(node).delete_all()
    node.run("kubectl", "delete", "poddisruptionbudgets,resourceclaimtemplates", "--all")
    node.run("kubectl", "label", "node", NODE_NAME, f"{UPGRADE_LABEL}-", f"{EXPORTER}-")
    node.run("kubectl", "delete", "--ignore-not-found", *files)


def use(layout: Layout, path: Path, **driver: Any) -> tuple[str, dict[str, dict[str, Any]]]:
    """The source of the GPUs, none of which has a job of its own, and the settings of an agent that upgrades."""
    profile = path / "profile.yaml"
    profile.write_text(f"{(PROFILES / 'dgx-h100.yaml').read_text()}jobs: false\n")
    doors = [{"gpus": ["4", "5"], "door": "fractions"}, {"gpus": ["6", "7"], "door": "claims"}]
    settings = claims.settings(layout) | {
        "doors": {"rules": doors},
        "fractions": {"enabled": True, "limit_compute": True},
        "repairs": {"drain": {"wait_seconds": 0}},
        "driver": {"upgrade": "act", "wanted_version": NEW, **driver},
    }
    return f"simulated:{profile}", settings


def use_installer(layout: Layout, path: Path) -> dict[str, Any]:
    """A command that waits in its first run until its agent was killed, and installs the libraries in the next one."""
    program = path / "install.py"
    program.write_text(INSTALLER)
    admin = layout.agent / "run" / "admin.sock"
    return {"installed_by": "command", "upgrade_command": [sys.executable, str(program), str(path), str(admin), NEW]}


def wait_upgrade(agent: AgentUnderTest, **wanted: object) -> Json:
    """The newest upgrade, once it is as wanted; an agent that starts meanwhile answers later."""
    found: Json = {}

    def probe() -> str | None:
        nonlocal found
        status, text = agent.get("/api/v1/upgrades")
        upgrades = json.loads(text)["upgrades"] if status == 200 else []
        found = next(iter(upgrades), {})
        return None if all(found.get(key) == value for key, value in wanted.items()) else text

    wait_until(f"an upgrade with {wanted}", probe, timeout_seconds=PATIENCE_SECONDS)
    return found


def wait_said(agent: AgentUnderTest, command: str, *words: str) -> str:
    """What a command about the driver answers, once all of the words are in the answer."""
    said = ""

    def probe() -> str | None:
        nonlocal said
        said = agent.run("driver", command)
        return None if all(word in said for word in words) else said

    wait_until(f"{words} in driver {command}", probe, timeout_seconds=PATIENCE_SECONDS)
    return said


def wait_told(agent: AgentUnderTest, code: str, word: str) -> None:
    def probe() -> str | None:
        details = list_conditions(agent.get_json("/api/v1/conditions"), code)
        return None if any(word in each for each in details) else str(details)

    wait_until(f"{word} in the condition {code}", probe, timeout_seconds=PATIENCE_SECONDS)


def label(node: Cluster, **labels: str | None) -> None:
    node.api.patch(f"/api/v1/nodes/{NODE_NAME}", {"metadata": {"labels": labels}})


def render(kind: str, name: str) -> Json:
    """A pod that gets a GPU, or a part of one, in this way."""
    match kind:
        case "plugin":
            pod = render_pod(name, limits={GPU: 1})
        case "fraction":
            pod = render_pod(name, limits={CORE: 30, MEMORY: 32})
        case _:
            pod = claims.render(name, template="each")
    pod["metadata"]["labels"] = {"app": kind}
    return pod


def make_budget(node: Cluster, app: str) -> None:
    """A budget that allows no eviction of its one pod."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    metadata = {"name": BUDGET}
    node.api.post(
        BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    )


def find_phases(pods: Pods, first: str) -> set[str]:
    """Phases of the pods with names that begin so."""
    return {pods.read(f"{first}-{kind}")["status"]["phase"] for kind in KINDS}


def test_a_driver_is_upgraded_under_pods_of_all_kinds_and_over_kills(
    node: Cluster, pods: Pods, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """A label holds the upgrade, a budget and a DaemonSet's pod are waited for, and pods that come wait for its end.

    The agent is killed in each phase with a wait: before the budget allows, before the DaemonSet's pod is gone, and
    while the installer runs.
    """
    label(node, **{UPGRADE_LABEL: "pause", EXPORTER: "true"})
    gpus, settings = use(node.layout, tmp_path, **use_installer(node.layout, tmp_path))
    agent = make_agent(gpus=gpus, settings=settings)
    node.wait_count(GPU, WHOLE)
    node.wait_count(CORE, 200)
    claims.make_template(node)
    for kind in KINDS:
        pods.run(render(kind, f"early-{kind}"))
    exporter = render_pod("exporter")
    exporter["metadata"]["labels"] = {"app": "nvidia-dcgm-exporter"}
    pods.run(exporter)
    make_budget(node, "plugin")

    early = [f"must leave default/early-{kind}" for kind in KINDS]
    plan = wait_said(agent, "plan", *early, f"not done   the node's label {UPGRADE_LABEL}=pause stops it")
    assert f"would upgrade the driver from {OLD} to {NEW}" in plan
    assert json.loads(agent.get("/api/v1/upgrades")[1])["upgrades"] == []

    label(node, **{UPGRADE_LABEL: None})
    begun = wait_upgrade(agent, phase="drain")
    wait_told(agent, "driver-upgrade-draining", BUDGET)
    named = f"upgrade {begun['number']}  {OLD} to {NEW}"
    wait_said(agent, "status", "pods leave: default/early-plugin", f"{named}, drain")
    wait_until(
        "the other pods to have left",
        lambda: str(left) if (left := {"early-fraction", "early-claim"} & {*pods.names()}) else None,
        timeout_seconds=PATIENCE_SECONDS,
    )
    node.wait_count(GPU, 0)
    for kind in KINDS:
        pods.create(render(kind, f"late-{kind}"))
    agent.restart()
    wait_said(agent, "status", "pods leave: default/early-plugin")
    assert pods.read("early-plugin")["status"]["phase"] == "Running"

    node.api.delete(f"{BUDGETS}/{BUDGET}")
    wait_upgrade(agent, phase="pause")
    wait_said(agent, "status", "others let go of the driver: default/exporter", f"{EXPORTER} (was true)")
    assert "early-plugin" not in pods.names()
    assert node.api.read_node()["metadata"]["labels"][EXPORTER] == PAUSED_FOR_UPGRADE
    agent.restart()
    wait_said(agent, "status", "others let go of the driver: default/exporter")

    pods.delete("exporter")
    wait_upgrade(agent, phase="install")
    wait_until(
        "the installer to run",
        lambda: None if (tmp_path / "begun").exists() else "it does not",
        timeout_seconds=PATIENCE_SECONDS,
    )
    assert find_phases(pods, "late") == {"Pending"}
    agent.stop(signal.SIGKILL)
    (tmp_path / "killed").touch()
    agent.start()

    ended = wait_upgrade(agent, ending="done")
    assert (ended["number"], ended["before"], ended["wanted"]) == (begun["number"], OLD, NEW)
    assert agent.get_json("/api/v1/driver")["module_version"] == NEW
    wait_said(agent, "status", f"driver {NEW} is loaded, as wanted", f"{named}, done")
    assert node.api.read_node()["metadata"]["labels"][EXPORTER] == "true"
    for kind in KINDS:
        pods.wait(f"late-{kind}", "Running")
    assert list_conditions(agent.get_json("/api/v1/conditions"), "driver-upgrade-under-way") == []


@pytest.mark.nightly
def test_a_budget_that_never_allows_keeps_its_pod_and_the_driver(
    node: Cluster, pods: Pods, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """After the deadline nobody is asked any more; the label `off` gives the upgrade up, and the node is as before."""
    label(node, **{UPGRADE_LABEL: "pause"})
    gpus, settings = use(node.layout, tmp_path, **use_installer(node.layout, tmp_path))
    settings["repairs"]["drain"]["deadline_seconds"] = 5
    agent = make_agent(gpus=gpus, settings=settings)
    node.wait_count(GPU, WHOLE)
    pods.run(render("plugin", "early"))
    container = pods.container_id("early")
    make_budget(node, "plugin")
    wait_said(agent, "plan", "must leave default/early")
    label(node, **{UPGRADE_LABEL: None})
    wait_told(agent, "driver-upgrade-draining", "it is asked no more")
    node.wait_count(GPU, 0)
    label(node, **{UPGRADE_LABEL: "off"})
    wait_upgrade(agent, ending="aborted", aborted_by="the node's label")
    node.wait_count(GPU, WHOLE)
    wait_said(agent, "plan", f"not done   the node's label {UPGRADE_LABEL}=off stops it")
    pods.run(render("plugin", "late"))
    assert pods.container_id("early") == container
    assert not (tmp_path / "begun").exists()


@pytest.mark.nightly
def test_a_driver_pod_that_never_loads_its_driver_gives_the_node_back(
    node: Cluster, pods: Pods, make_agent: MakeAgent, tmp_path: Path
) -> None:
    """Pods get GPUs of the driver that comes back; after a person's word the next pod brings the wanted driver."""
    pods.run(render_driver_pod("driver-old"))
    gpus, settings = use(node.layout, tmp_path, installed_by="container", upgrade_seconds=20)
    agent = make_agent(gpus=gpus, settings=settings)
    wait_sent_away(pods, "driver-old")
    agent.break_it("driver", "gone")
    pods.run(render_driver_pod("driver-broken"))
    wait_said(agent, "status", "because    no driver pod has loaded a driver within 20 s")
    agent.break_it("driver", "back")
    failed = wait_upgrade(agent, ending="failed")
    wait_told(agent, "driver-upgrade-failed", "no driver pod has loaded a driver within 20 s")
    node.wait_count(GPU, WHOLE)
    pods.run(render("plugin", "train"))
    pods.delete("train")

    agent.run("driver", "resume")
    wait_sent_away(pods, "driver-broken")
    agent.break_it("driver", "gone")
    pods.create(render_driver_pod("driver-new"))
    agent.break_it("driver", "back", NEW)
    assert wait_upgrade(agent, ending="done")["number"] > failed["number"]
    pods.run(render("plugin", "train"))
    assert pods.read("driver-new")["status"]["phase"] == "Running"
    assert list_conditions(agent.get_json("/api/v1/conditions"), "driver-upgrade-failed") == []


def render_driver_pod(name: str) -> Json:
    """A pod as the DaemonSet of a driver makes it."""
    pod = render_pod(name)
    pod["metadata"]["labels"] = {"app.kubernetes.io/component": "nvidia-driver"}
    return pod


def wait_sent_away(pods: Pods, name: str) -> None:
    wait_until(
        f"{name} to have left",
        lambda: name if name in pods.names() else None,
        timeout_seconds=PATIENCE_SECONDS,
    )
