"""A GPU that needs a reset, on a real kubelet and API server: its pod leaves as a budget allows, and no other does."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.slots import CLUSTER, Domain
from tests.deploy.helm import NAMESPACE, render_chart
from tests.fakes.nvidia_smi.program import FakeSmi
from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME
from tests.integration.cluster.pods import PATH, Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_allocation_modes import GPU, SETTINGS, _find_index, _wait_counts
from tests.integration.test_cordon import list_conditions
from tests.integration.test_labels import wait

RIGHTS = CHECKOUT / "deploy" / "rbac-repairs.yaml"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DOMAINS = [{"label": CLUSTER, "slots": 1}]
BREAKER = "nodeagent.io/repairs-breaker"
XID_EVENT, FIRMWARE_SILENT, RESET_RECOMMENDED = 8, 119, 1
LIMIT_WATTS = 600
"""What somebody has set, and a reset takes back."""
PATIENCE_SECONDS = 60.0


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSmi]:
    """The driver's program that agents of this test find."""
    made = FakeSmi(tmp_path / "smi")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    made.give("done")
    yield made
    if made.is_hanging():
        made.end_hanging()


@pytest.fixture
def slot(node: Cluster, tmp_path: Path) -> Iterator[str]:
    """The path of the cluster's one slot, with the chart's rights for repairs."""
    file = tmp_path / "slots.yaml"
    words = ("--set-json", f"repairs.slots.domains={json.dumps(DOMAINS)}", "-s", "templates/repair-slots.yaml")
    file.write_text(render_chart(*words).stdout)
    files = ("-f", str(RIGHTS), "-f", str(file))
    node.run("kubectl", "apply", *files)
    yield f"{LEASES}/{Domain(key=CLUSTER, value='', slots=1).name_slot(0)}"
    node.run("kubectl", "delete", *files)


@pytest.fixture
def budget(node: Cluster) -> Iterator[str]:
    """The path of a budget that keeps the pod `train`."""
    metadata = {"name": "keep-train"}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
    node.api.post(
        BUDGETS, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    )
    path = f"{BUDGETS}/keep-train"
    yield path
    if node.api.find(path) is not None:
        node.api.delete(path)


def plan_settings(fake: FakeNvml) -> dict[str, dict[str, Any]]:
    """An agent that acts, with one slot of the cluster, and in haste."""
    return {
        **SETTINGS,
        "driver": {"nvml_library": str(fake.library_path), "worker_environment": dict(fake.environment)},
        "health": {"poll_seconds": 0.5, "clean_polls": 1},
        "inventory": {"sample_seconds": 0.2},
        "repairs": {
            "mode": "act",
            "drain": {"wait_seconds": 0},
            "slots": {"namespace": NAMESPACE, "domains": DOMAINS},
        },
    }


def fail_firmware(fake: FakeNvml, index: int) -> None:
    """The driver reports it once, and recommends a reset until there was one."""
    fake.gpu(index).recovery_action = RESET_RECOMMENDED
    fake.push_event(index, XID_EVENT, FIRMWARE_SILENT)


def wait_settled(agent: AgentUnderTest) -> None:
    def is_settled() -> bool:
        state = agent.get_json("/api/v1/repairs")
        return state["mode"] == "act" and not state["unsettled"]

    wait("the findings to settle", is_settled)


def list_resets(smi: FakeSmi) -> list[str]:
    return [line for line in smi.read_log() if "--gpu-reset" in line]


def read_holder(node: Cluster, slot: str) -> str:
    return str(node.api.get(slot)["spec"].get("holderIdentity", ""))


def wait_given_back(node: Cluster, slot: str, results: str) -> None:
    """Without a holder, and with what came of the repair."""
    wait("the slot to be given back", lambda: not read_holder(node, slot))
    assert f'"results":{results}' in node.api.get(slot)["metadata"]["annotations"][BREAKER]


def test_a_pod_leaves_as_its_budget_allows_and_its_gpu_is_reset(
    node: Cluster, pods: Pods, make_agent: MakeAgent, fake: FakeNvml, smi: FakeSmi, slot: str, budget: str
) -> None:
    """A pod that waits gets the GPU once polls have proven it; the others run as before, and nobody is reset away."""
    agent = make_agent(gpus="nvml", settings=plan_settings(fake))
    _wait_counts(node, 8, 8)
    manifest = render_pod("train", limits={GPU: 1})
    manifest["metadata"]["labels"] = {"app": "train"}
    train = pods.create(manifest)
    others = [pods.create(render_pod(name, limits={GPU: count})) for name, count in (("beside", 1), ("wide", 6))]
    for name in (train, *others):
        pods.wait(name, "Running")
    before = {name: pods.container_id(name) for name in others}
    index = _find_index(agent, train)
    wait_settled(agent)
    fail_firmware(fake, index)

    def find_unsaid() -> str | None:
        told = list_conditions(agent.get_json("/api/v1/conditions"), "repair-draining")
        return None if any("default/train" in one and "budget keep-train" in one for one in told) else f"{told}"

    wait_until("the budget's no", find_unsaid, timeout_seconds=PATIENCE_SECONDS)
    late = pods.create(render_pod("late", limits={GPU: 1}))
    _wait_counts(node, 8, 7)
    assert read_holder(node, slot).startswith(f"{NODE_NAME}/")
    assert (pods.read(train)["status"]["phase"], list_resets(smi)) == ("Running", [])
    node.api.delete(budget)

    def find_unreset() -> str | None:
        resets, pod = list_resets(smi), node.api.find(f"{PATH}/{train}")
        assert not (resets and pod and has_reached(pod, "Running")), f"{resets} with {pod}"
        return None if resets else agent.run("repairs", "why-not", str(index))

    wait_until("the reset", find_unreset, timeout_seconds=PATIENCE_SECONDS)
    fake.reset(index)
    pods.wait(late, "Running")
    assert _find_index(agent, late) == index
    _wait_counts(node, 8, 8)
    (session,) = agent.get_json("/api/v1/repairs")["sessions"]
    assert (session["cause"], session["ending"]) == ("xid-119", "repaired")
    assert [one["outcome"] for one in session["attempts"]] == ["proven"]
    address = session["gpus"][0]["address"]
    assert smi.read_log() == [f"-i {address} -pm 0", f"--gpu-reset -i {address}", f"-i {address} -pm 1"]
    assert {name: pods.container_id(name) for name in others} == before
    assert not [name for name in others if pods.read(name)["status"]["containerStatuses"][0]["restartCount"]]
    wait_given_back(node, slot, "[true]")


def test_an_agent_killed_within_a_reset_goes_no_further_than_it_may(
    node: Cluster, make_agent: MakeAgent, fake: FakeNvml, smi: FakeSmi, slot: str
) -> None:
    """The next agent counts the attempt as failed, puts the settings back, and says why it does nothing more."""
    smi.give("hang")
    gpu = fake.gpu(3)
    gpu.power_limit_milliwatts = LIMIT_WATTS * 1000
    agent = make_agent(gpus="nvml", settings=plan_settings(fake))
    wait_settled(agent)
    fail_firmware(fake, 3)
    wait("the reset", smi.is_hanging)
    agent.stop(signal.SIGKILL)
    gpu.persistence_mode, gpu.power_limit_milliwatts = 0, gpu.power_default_milliwatts
    smi.end_hanging()
    agent.start()
    agent.wait_ready()
    wait_settled(agent)
    address = fake.profile.seats[3].address
    wait("the settings", lambda: smi.read_setting("-pl", address) == str(LIMIT_WATTS))
    assert smi.read_setting("-pm", address) == "1"
    explained = agent.run("repairs", "explain", "3")
    assert "open, rung reboot" in explained
    assert "reset: unknown; the agent ended before the attempt did" in explained
    assert "rung reboot is above `repairs.up_to`: reset" in explained
    assert len(list_resets(smi)) == 1
    wait_given_back(node, slot, "[false]")
