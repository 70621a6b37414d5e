"""A GPU that is cordoned from the cluster, on a real kubelet: new pods do not get it, and its pod goes on."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.test_allocation_modes import GPU, SETTINGS, _find_index, _find_indexes, _wait_counts

ANNOTATION = "nodeagent.io/gpu-cordon"
LASTS_SECONDS = 90
PATIENCE_SECONDS = 60


@pytest.fixture(autouse=True)
def annotation(node: Cluster) -> Iterator[None]:
    """The node of the session is left without the annotation."""
    yield
    node.run("kubectl", "annotate", "node", NODE_NAME, f"{ANNOTATION}-")


def annotate(node: Cluster, text: str) -> None:
    node.run("kubectl", "annotate", "--overwrite", "node", NODE_NAME, f"{ANNOTATION}={text}")


def read_events(node: Cluster, reason: str) -> str:
    return node.run(
        "kubectl", "get", "events", "--all-namespaces", "--field-selector",
        f"involvedObject.kind=Node,reason={reason}", "-o", "jsonpath={.items[*].message}",
    )  # fmt: skip


def list_conditions(found: Any, code: str) -> list[str]:
    return [one["detail"] for one in found if one["code"] == code]


def test_a_gpu_is_cordoned_by_the_node_until_its_time(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The capacity stays, one GPU less is allocatable, a killed agent remembers, and the time opens the GPU."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    _wait_counts(node, 8, 8)
    name = pods.run(render_pod("train", limits={GPU: 1}))
    index = _find_index(agent, name)
    ends = int(time.time()) + LASTS_SECONDS
    end = datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    annotate(node, json.dumps([{"gpu": index, "reason": "fan is loud", "until": end}]))
    _wait_counts(node, 8, 7)
    agent.restart()
    said = agent.run("gpu", "doors")
    assert "fan is loud" in said
    assert f"default/{name} (main)" in said
    (detail,) = list_conditions(agent.get_json("/api/v1/conditions"), "gpu-cordoned")
    assert f"which waits for default/{name} (main)" in detail
    pods.wait(name, "Running")
    # The scheduler subtracts the pod's GPU from what is allocatable, although the cordon has taken it out already.
    rest = pods.run(render_pod("rest", limits={GPU: 6}))
    assert index not in _find_indexes(agent, rest)
    late = pods.create(render_pod("late", limits={GPU: 1}))
    node.wait_count(GPU, 8, timeout_seconds=LASTS_SECONDS + PATIENCE_SECONDS)
    assert time.time() >= ends
    pods.wait(late, "Running")
    assert pods.read(name)["status"]["phase"] == "Running"
    assert list_conditions(agent.get_json("/api/v1/conditions"), "gpu-cordoned") == []
    assert "fan is loud" in read_events(node, "GPUCordoned")
    assert "its time is over" in read_events(node, "GPUUncordoned")


def test_each_source_lifts_its_own_cordon(node: Cluster, make_agent: MakeAgent) -> None:
    """The command and the annotation together; the one that stays keeps the GPU closed."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    _wait_counts(node, 8, 8)
    annotate(node, '[{"gpu": "3", "reason": "firmware"}]')
    _wait_counts(node, 8, 7)
    agent.run("gpu", "cordon", "3", "--reason", "fan")
    node.run("kubectl", "annotate", "node", NODE_NAME, f"{ANNOTATION}-")
    wait_until(
        "the annotation's cordon to be lifted",
        lambda: "still there" if "firmware" in agent.run("gpu", "doors") else None,
        timeout_seconds=30,
    )
    _wait_counts(node, 8, 7)
    agent.run("gpu", "uncordon", "3")
    _wait_counts(node, 8, 8)


def test_a_misspelt_cordon_is_refused_on_the_node(node: Cluster, make_agent: MakeAgent) -> None:
    """As an event and as a condition, with the key; what was cordoned before stays cordoned."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=SETTINGS)
    _wait_counts(node, 8, 8)
    annotate(node, '[{"gpu": 3, "reason": "fan"}]')
    _wait_counts(node, 8, 7)
    annotate(node, '[{"gpu": 3, "raeson": "fan"}]')

    def find_untold() -> str | None:
        told = list_conditions(agent.get_json("/api/v1/conditions"), "cordon-refused")
        events = read_events(node, "GPUCordonRefused")
        return None if any("raeson" in each for each in told) and "raeson" in events else f"{told}, {events}"

    wait_until("the refusal on the node", find_untold, timeout_seconds=30)
    _wait_counts(node, 8, 7)
    annotate(node, "[]")
    _wait_counts(node, 8, 8)
    assert list_conditions(agent.get_json("/api/v1/conditions"), "cordon-refused") == []
