"""The node object as the API server writes it, and the documents that change it.

Owns the shape of these documents. Pure: nothing here talks.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nodeagent.model.cluster import DEVICE_PREFIX, PREFIX, READY_CONDITION, ClusterNode, NodeCondition, Taint

FIELD_MANAGER = "nodeagent"
_METADATA_FIELD = "f:metadata"

Json = dict[str, Any]


def parse_node(document: Json) -> ClusterNode:
    """What the agent reads of a node.

    Raises:
        ValueError: the document is no node.
    """
    try:
        metadata = document["metadata"]
        conditions = [_parse_condition(each) for each in document.get("status", {}).get("conditions") or ()]
        return ClusterNode(
            name=metadata["name"],
            uid=metadata["uid"],
            labels=dict(metadata.get("labels") or {}),
            owned_labels=_find_owned(metadata, "Apply", "f:labels"),
            written_labels=_find_owned(metadata, "Update", "f:labels"),
            written_annotations=_find_owned(metadata, "Update", "f:annotations"),
            annotations={
                key: value for key, value in (metadata.get("annotations") or {}).items() if key.startswith(PREFIX)
            },
            taints=tuple(_parse_taint(each) for each in document.get("spec", {}).get("taints") or ()),
            condition=next((each for each in conditions if each.type == READY_CONDITION), None),
            device_conditions=tuple(each for each in conditions if each.type.startswith(DEVICE_PREFIX)),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the API server's answer is no node: {error!r}") from error


def render_labels_patch(node: ClusterNode, labels: Mapping[str, str]) -> Json:
    """All labels that shall be ours. The uid keeps the patch from making a node where there is none."""
    metadata = {"name": node.name, "uid": node.uid, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def render_condition_patch(condition: NodeCondition, now_seconds: float, *, changed: bool) -> Json:
    """The condition alone; its transition time moves with its status only."""
    now = render_time(now_seconds)
    document = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": now,
    }
    return {"status": {"conditions": [document | ({"lastTransitionTime": now} if changed else {})]}}


def render_condition_removal(kind: str) -> Json:
    """No condition of this type; others stay."""
    return {"status": {"conditions": [{"type": kind, "$patch": "delete"}]}}


def render_taints_patch(document: Json, *, add: Taint | None = None, remove: Taint | None = None) -> Json:
    """The node's taints with one more or one less; refused by the server if the node has changed meanwhile."""
    taints = [each for each in document.get("spec", {}).get("taints") or () if not (remove and _is_same(each, remove))]
    if add is not None and not any(_is_same(each, add) for each in taints):
        taints.append({"key": add.key, "effect": add.effect} | ({"value": add.value} if add.value else {}))
    return {"metadata": {"resourceVersion": document["metadata"]["resourceVersion"]}, "spec": {"taints": taints}}


def render_time(seconds: float) -> str:
    """A time as the API has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_same(document: Json, taint: Taint) -> bool:
    return document.get("key") == taint.key and document.get("effect") == taint.effect


def _parse_taint(document: Json) -> Taint:
    return Taint(key=document["key"], effect=document["effect"], value=document.get("value", ""))


def _parse_condition(document: Json) -> NodeCondition:
    return NodeCondition(
        status=document["status"],
        reason=document.get("reason", ""),
        message=document.get("message", ""),
        type=document["type"],
    )


def _find_owned(metadata: Json, operation: str, kind: str) -> tuple[str, ...]:
    """The labels or annotations that the API server keeps as the agent's, by the kind of write that has set them."""
    found = set[str]()
    for entry in metadata.get("managedFields") or ():
        if entry.get("subresource") or (entry.get("manager"), entry.get("operation")) != (FIELD_MANAGER, operation):
            continue
        fields = entry.get("fieldsV1", {}).get(_METADATA_FIELD, {}).get(kind, {})
        found.update(key.removeprefix("f:") for key in fields if key.startswith("f:"))
    return tuple(sorted(found))
