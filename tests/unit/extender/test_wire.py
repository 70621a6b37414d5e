"""Kube-scheduler's questions and the answers, as they are on the wire."""

import json
from typing import Any

import pytest

from nodeagent.extender.decide import Filtered
from nodeagent.extender.errors import QuestionMalformed, QuestionTooLarge
from nodeagent.extender.wire import (
    CONTAINERS_MAX,
    POD_BYTES_MAX,
    parse_question,
    render_all,
    render_filtered,
    render_refusal,
    render_scores,
)
from nodeagent.model.scheduling import SeenContainer, SeenPod

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ml",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {"a": "b"},
        "labels": {"x": "y"},
    },
    "spec": {
        "initContainers": [{"name": "i", "restartPolicy": "Always"}, {"name": "j", "restartPolicy": None}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"limits": {"tencent.com/vcuda-core": "30", "cpu": "1", "d/e": 4}},
            },
            {"name": "d", "resources": {}, "restartPolicy": "Always"},
        ],
    },
    "status": {"phase": "Pending"},
}
NODES: dict[str, Any] = {
    "metadata": {},
    "items": [{"metadata": {"name": name, "labels": {"k": name}}} for name in ("n", "m")],
}

MOST = 100


def ask(**fields: Any) -> bytes:
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": None} | fields).encode()


BY_NAME, WHOLE = ask(NodeNames=["n", "m"]), ask(Nodes=NODES)


def test_a_pod_is_read_for_what_matters() -> None:
    """Its identity, its annotations, and what its containers ask for of what has a domain."""
    pod = parse_question(BY_NAME, most_nodes=MOST).pod
    assert pod == SeenPod(
        namespace="ml",
        name="p",
        uid="u",
        version="7",
        created="2026-01-02T03:04:05Z",
        annotations={"a": "b"},
        containers=(
            SeenContainer(name="c", limits={"tencent.com/vcuda-core": "30", "d/e": "4"}),
            SeenContainer(name="d"),
        ),
        init_containers=(SeenContainer(name="i", is_sidecar=True), SeenContainer(name="j")),
    )


def test_the_least_of_a_pod_is_enough() -> None:
    """What is left out is empty."""
    least = {"metadata": {"name": "p", "namespace": "ml", "uid": "u", "annotations": None}}
    assert parse_question(ask(Pod=least, NodeNames=[]), most_nodes=MOST).pod == SeenPod(
        namespace="ml", name="p", uid="u"
    )
    bound = least | {"spec": {"nodeName": "n", "containers": None}, "status": {"phase": "Failed"}}
    pod = parse_question(ask(Pod=bound, NodeNames=[]), most_nodes=MOST).pod
    assert (pod.node, pod.is_finished) == ("n", True)


@pytest.mark.parametrize("names", [("pod", "nodes", "nodenames"), ("Pod", "Nodes", "NodeNames")])
def test_fields_are_read_in_any_case(names: tuple[str, str, str]) -> None:
    """As by programs in Go."""
    pod, nodes, node_names = names
    asked = parse_question(json.dumps({pod: POD, nodes: None, node_names: ["n"]}).encode(), most_nodes=MOST)
    assert (asked.names, asked.nodes) == (("n",), None)
    asked = parse_question(json.dumps({pod: POD, nodes: NODES, node_names: None}).encode(), most_nodes=MOST)
    assert asked.names == ("n", "m")


@pytest.mark.parametrize("body", [BY_NAME, WHOLE])
def test_nodes_are_answered_as_they_were_asked_about(body: bytes) -> None:
    """By name, or as the whole objects that came; never both."""
    asked = parse_question(body, most_nodes=MOST)
    found = Filtered(("m",), {"n": "full"}, {"o": "never"})
    answer = json.loads(render_filtered(asked, found))
    assert answer["FailedNodes"] == {"n": "full"}
    assert answer["FailedAndUnresolvableNodes"] == {"o": "never"}
    assert answer["Error"] == ""
    if body is BY_NAME:
        assert (answer["NodeNames"], answer["Nodes"]) == (["m"], None)
    else:
        assert (answer["NodeNames"], answer["Nodes"]["items"]) == (None, [NODES["items"][1]])


@pytest.mark.parametrize("body", [BY_NAME, WHOLE])
def test_every_node_passes_for_a_pod_of_others(body: bytes) -> None:
    answer = json.loads(render_all(parse_question(body, most_nodes=MOST)))
    names = answer["NodeNames"] or [each["metadata"]["name"] for each in answer["Nodes"]["items"]]
    assert (names, answer["FailedNodes"], answer["Error"]) == (["n", "m"], {}, "")


def test_no_node_left_is_an_empty_list() -> None:
    """Not `null`, which would mean that the other form is used."""
    answer = json.loads(render_filtered(parse_question(BY_NAME, most_nodes=MOST), Filtered((), {}, {})))
    assert answer["NodeNames"] == []
    answer = json.loads(render_all(parse_question(ask(Nodes={"items": None}), most_nodes=MOST)))
    assert answer["Nodes"]["items"] == []


def test_a_refusal_says_why() -> None:
    """In the one field that kube-scheduler shows."""
    answer = json.loads(render_refusal("because"))
    assert (answer["Error"], answer["Nodes"], answer["NodeNames"]) == ("because", None, None)


def test_scores_are_a_list() -> None:
    assert json.loads(render_scores([("n", 10), ("m", 0)])) == [{"Host": "n", "Score": 10}, {"Host": "m", "Score": 0}]


def without(*keys: str) -> dict[str, Any]:
    return POD | {"metadata": {key: value for key, value in POD["metadata"].items() if key not in keys}}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "it is not ExtenderArgs: "),
        (b"[]", "it is not ExtenderArgs: "),
        (b"\xff\xfe", "it is not ExtenderArgs: "),
        (b"{" * 100000, "it is not ExtenderArgs: "),
        (b'{"a":' * 100000, "it is not ExtenderArgs: "),
        (b"{}", "it names no pod"),
        (ask(Pod=None, NodeNames=[]), "it names no pod"),
        (ask(Pod={}, NodeNames=[]), "it is not a pod: Object missing required field `metadata`"),
        (ask(Pod=without("uid"), NodeNames=[]), "the pod p has no uid"),
        (ask(Pod=without("name"), NodeNames=[]), "the pod u has no name"),
        (ask(Pod=without("namespace"), NodeNames=[]), "the pod p has no namespace"),
        (ask(Pod=without("name", "uid"), NodeNames=[]), "the pod asked about has no name"),
        (ask(Pod=POD | {"spec": {"containers": [4]}}, NodeNames=[]), "it is not a pod: Expected `object`, got `int`"),
        (ask(), "it has neither NodeNames nor Nodes"),
        (ask(NodeNames="n"), "it is not a list of node names: Expected `array`, got `str`"),
        (ask(NodeNames=[1]), "it is not a list of node names: Expected `str`, got `int`"),
        (ask(Nodes=[]), "it is not a list of nodes: Expected `object`, got `array`"),
        (ask(Nodes={"items": [{}]}), "it is not a list of nodes: Object missing required field `metadata`"),
        (ask(Nodes={"items": [{"metadata": {}}]}), "it is not a list of nodes: Object missing required field `name`"),
    ],
)
def test_what_is_no_question_is_told(body: bytes, reason: str) -> None:
    """By what is wrong with it, and what would be right."""
    with pytest.raises(QuestionMalformed) as caught:
        parse_question(body, most_nodes=MOST)
    assert caught.value.reason.startswith(reason)
    assert str(caught.value).endswith("send ExtenderArgs as kube-scheduler does")


def test_as_many_nodes_as_there_can_be_are_read() -> None:
    names = [f"{number:0>253}" for number in range(MOST)]
    assert parse_question(ask(NodeNames=names), most_nodes=MOST).names == tuple(names)
    items = [{"metadata": {"name": name}} for name in names]
    assert parse_question(ask(Nodes={"items": items}), most_nodes=MOST).names == tuple(names)


@pytest.mark.parametrize(
    "body",
    [
        ask(NodeNames=["n"] * (MOST + 1)),
        ask(NodeNames=["n" * 253] * (MOST + 2)),
        ask(Nodes={"items": [{"metadata": {"name": "n"}}] * (MOST + 1)}),
        ask(NodeNames=["n"], Pod=POD | {"metadata": POD["metadata"] | {"annotations": {"a": "b" * POD_BYTES_MAX}}}),
        ask(NodeNames=["n"], Pod=POD | {"spec": {"containers": [{}] * (CONTAINERS_MAX + 1)}}),
    ],
    ids=["names", "long names", "whole nodes", "pod", "containers"],
)
def test_what_no_cluster_of_this_size_could_ask_is_too_large(body: bytes) -> None:
    """Nothing of it is made that could weigh more than its bytes."""
    with pytest.raises(QuestionTooLarge, match="too large"):
        parse_question(body, most_nodes=MOST)


def test_what_stands_beside_a_question_is_skipped() -> None:
    """A million keys that nobody asked for are not made."""
    keys: dict[str, Any] = {f"key-{number}": [{}] for number in range(1000)}
    assert parse_question(ask(NodeNames=["n"], **keys), most_nodes=MOST).names == ("n",)
