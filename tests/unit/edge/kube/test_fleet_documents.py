"""Nodes as the API server writes them; pods are read the same way as kube-scheduler's."""

import json
from typing import Any

import pytest

from nodeagent.edge.kube.fleet_documents import parse_node
from nodeagent.model.scheduling import SeenNode


def read(document: Any) -> SeenNode:
    return parse_node(json.dumps(document).encode())


def test_a_node_is_read_for_annotations_and_capacity() -> None:
    """Of its capacity what has a domain; the rest of it, which is most, is not made."""
    document = {
        "metadata": {"name": "n", "annotations": {"a": "b"}, "managedFields": [{"manager": "m"}]},
        "status": {"capacity": {"cpu": "4", "tencent.com/vcuda-core": "200", "x/y": 1}, "images": [{"names": ["i"]}]},
    }
    assert read(document) == SeenNode(
        name="n", annotations={"a": "b"}, capacity={"tencent.com/vcuda-core": "200", "x/y": "1"}
    )


@pytest.mark.parametrize("document", [{"metadata": {"name": "n"}}, {"metadata": {"name": "n"}, "status": {}}])
def test_the_least_of_a_node_is_enough(document: Any) -> None:
    assert read(document) == SeenNode(name="n")


@pytest.mark.parametrize(
    ("document", "reason"),
    [({}, "it is not a node"), ({"metadata": {}}, "a node has no name"), ([], "it is not a node")],
)
def test_what_is_no_node_is_told(document: Any, reason: str) -> None:
    """Rather than kept under no name."""
    with pytest.raises(ValueError, match=reason):
        read(document)
