"""The Node object as written by the API server, and the documents for changes.

Owns the shape of the documents. Pure: no communication.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nodeagent.model.cluster import DEVICE_PREFIX, PREFIX, READY_CONDITION, ClusterNode, NodeCondition, Taint
from nodeagent.model.cordons import CORDON_ANNOTATION, HAMI_CORDON_ANNOTATION
from nodeagent.model.repairers import SKIP_ANNOTATION

FIELD_MANAGER = "nodeagent"
_METADATA_FIELD = "f:metadata"
_READ_ANNOTATIONS = frozenset({CORDON_ANNOTATION, HAMI_CORDON_ANNOTATION, SKIP_ANNOTATION})

Json = dict[str, Any]


def parse_node(document: Json) -> ClusterNode:
    """The agent's view of a Node; a document of another shape raises Python's own errors."""
    metadata = document["metadata"]
    status = document.get("status", {})
    conditions = [_parse_condition(each) for each in status.get("conditions") or ()]
    writers = _find_writers(metadata)
    return ClusterNode(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=dict(metadata.get("labels") or {}),
        owned_labels=_find_owned(metadata, "Apply", "f:labels"),
        written_labels=_find_owned(metadata, "Update", "f:labels"),
        written_annotations=_find_owned(metadata, "Update", "f:annotations"),
        annotations={
            key: value
            for key, value in (metadata.get("annotations") or {}).items()
            if key.startswith(PREFIX) or key in _READ_ANNOTATIONS
        },
        taints=tuple(_parse_taint(each) for each in document.get("spec", {}).get("taints") or ()),
        condition=next((each for each in conditions if each.type == READY_CONDITION), None),
        device_conditions=tuple(each for each in conditions if each.type.startswith(DEVICE_PREFIX)),
        other_conditions=tuple(each for each in conditions if not each.type.startswith((DEVICE_PREFIX, PREFIX))),
        written_conditions=tuple(kind for kind, writer in writers.items() if writer == FIELD_MANAGER),
        condition_writers={kind: writer for kind, writer in writers.items() if writer != FIELD_MANAGER},
        is_going="deletionTimestamp" in metadata,
        kubelet_version=str((status.get("nodeInfo") or {}).get("kubeletVersion") or ""),
    )


def render_labels_patch(node: ClusterNode, labels: Mapping[str, str]) -> Json:
    """All labels wanted as ours. The uid keeps the patch from making a missing node."""
    metadata = {"name": node.name, "uid": node.uid, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def render_condition_patch(condition: NodeCondition, now_seconds: float, *, changed: bool) -> Json:
    """The condition alone; the transition time moves only with the status."""
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
    """A patch without the condition of the type; others stay."""
    return {"status": {"conditions": [{"type": kind, "$patch": "delete"}]}}


def render_taints_patch(document: Json, *, add: Taint | None = None, remove: Taint | None = None) -> Json:
    """The node's taints with a taint added or removed; the server refuses the patch after a change of the node."""
    taints = [each for each in document.get("spec", {}).get("taints") or () if not (remove and _is_same(each, remove))]
    if add is not None and not any(_is_same(each, add) for each in taints):
        taints.append({"key": add.key, "effect": add.effect} | ({"value": add.value} if add.value else {}))
    return {"metadata": {"resourceVersion": document["metadata"]["resourceVersion"]}, "spec": {"taints": taints}}


def render_time(seconds: float) -> str:
    """A time in the API's form."""
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
    """The agent's labels or annotations by the API server's records, by the kind of write."""
    found = set[str]()
    for entry in metadata.get("managedFields") or ():
        if entry.get("subresource") or (entry.get("manager"), entry.get("operation")) != (FIELD_MANAGER, operation):
            continue
        fields = entry.get("fieldsV1", {}).get(_METADATA_FIELD, {}).get(kind, {})
        found.update(key.removeprefix("f:") for key in fields if key.startswith("f:"))
    return tuple(sorted(found))


def _find_writers(metadata: Json) -> dict[str, str]:
    """The manager that has written the status of each condition, by the API server's records."""
    found: dict[str, str] = {}
    for entry in metadata.get("managedFields") or ():
        if entry.get("subresource") == "status":
            conditions = entry.get("fieldsV1", {}).get("f:status", {}).get("f:conditions", {})
            for key, fields in conditions.items():
                if "f:status" in fields:
                    found[json.loads(key.removeprefix("k:"))["type"]] = str(entry.get("manager", ""))
    return dict(sorted(found.items()))
