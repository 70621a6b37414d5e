"""What NVSentinel's marks on a node say."""

import pytest
from msgspec.structs import replace

from nodeagent.model.cluster import ClusterNode, NodeCondition, Taint
from nodeagent.rules.repairers import describe_marks, is_left_to_others, list_vetoes

RELEASED = Taint(key="nvsentinel.dgxc.nvidia.com/external-remediation", value="r-1", effect="NoSchedule")
CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
MAINTENANCE = NodeCondition(type="MaintenanceInProgress", status="True", reason="Window")
SKIP = "cluster.x-k8s.io/skip-remediation"


def make_node(taints: tuple[Taint, ...] = (), **labels: str) -> ClusterNode:
    keys = {"state": "dgxc.nvidia.com/nvsentinel-state", "managed": "nvsentinel.dgxc.nvidia.com/managed"}
    return ClusterNode(name="n", uid="u", labels={keys[key]: value for key, value in labels.items()}, taints=taints)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("quarantined", "keeps new pods away from this node"),
        ("draining", "has the pods of this node leave"),
        ("drain-succeeded", "has drained this node and is about to repair it"),
        ("drain-failed", "could not drain this node and waits for a person"),
        ("remediating", "repairs this node"),
        ("remediation-succeeded", "has asked for a repair of this node and waits for its end"),
        ("remediation-failed", "could not repair this node and waits for a person"),
        ("of-a-later-release", "has this node"),
    ],
)
def test_each_state_is_a_sentence_with_its_label(state: str, words: str) -> None:
    """A state of a later release is named as it is; NVSentinel has not left the node to anybody."""
    node = make_node(state=state)
    assert describe_marks(node) == f"NVSentinel {words} (dgxc.nvidia.com/nvsentinel-state={state})"
    assert not is_left_to_others(node)


@pytest.mark.parametrize("key", [RELEASED.key, "nvsentinel.nvidia.com/external-remediation"])
def test_a_node_left_to_another_program_is_known_by_its_taint(key: str) -> None:
    """In the key of today and in that of older designs."""
    node = make_node((Taint(key=key, value="r-1", effect="NoSchedule"),))
    assert describe_marks(node) == f"NVSentinel has left this node to another program ({key}=r-1:NoSchedule)"
    assert is_left_to_others(node)


def test_a_node_that_nvsentinel_leaves_alone_is_known_by_its_label() -> None:
    """Only the exact value counts, as for NVSentinel."""
    alone = "NVSentinel leaves this node alone (nvsentinel.dgxc.nvidia.com/managed=false)"
    assert describe_marks(make_node(managed="false")) == alone
    assert is_left_to_others(make_node(managed="false"))
    for value in ("true", "False"):
        assert describe_marks(make_node(managed=value)) == ""
        assert not is_left_to_others(make_node(managed=value))


def test_all_marks_are_told() -> None:
    """The state first; taints of others are no marks."""
    others = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    told = describe_marks(make_node((others, RELEASED), state="draining", managed="false"))
    assert [each.partition(" (")[0] for each in told.split("; ")] == [
        "NVSentinel has the pods of this node leave",
        "NVSentinel has left this node to another program",
        "NVSentinel leaves this node alone",
    ]
    assert describe_marks(make_node((others,))) == ""


@pytest.mark.parametrize(
    ("node", "mark"),
    [
        (make_node(state="draining"), "dgxc.nvidia.com/nvsentinel-state=draining"),
        (make_node(managed="false"), "nvsentinel.dgxc.nvidia.com/managed=false"),
        (make_node((RELEASED,)), "nvsentinel.dgxc.nvidia.com/external-remediation=r-1:NoSchedule"),
        (make_node((CORDONED,)), "node.kubernetes.io/unschedulable:NoSchedule"),
        (ClusterNode(name="n", uid="u", labels={"nodeagent.io/repairs": "off"}), "nodeagent.io/repairs=off"),
        (ClusterNode(name="n", uid="u", annotations={SKIP: ""}), SKIP),
        (ClusterNode(name="n", uid="u", other_conditions=(MAINTENANCE,)), "condition MaintenanceInProgress"),
        (ClusterNode(name="n", uid="u", is_going=True), "the deletion of the node"),
    ],
)
def test_each_mark_that_forbids_a_repair_is_named(node: ClusterNode, mark: str) -> None:
    assert list(list_vetoes(node)) == [mark]


def test_a_node_without_such_marks_may_be_repaired() -> None:
    """A label with another value, a taint of another meaning and a maintenance that is over are no marks."""
    over, other = replace(MAINTENANCE, status="False"), replace(MAINTENANCE, type="DiskPressure")
    node = make_node((Taint(key="nvidia.com/gpu", effect="NoSchedule"),), managed="true")
    node = replace(node, labels={**node.labels, "nodeagent.io/repairs": "on"}, other_conditions=(over, other))
    assert list(list_vetoes(node)) == []
