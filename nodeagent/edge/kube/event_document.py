"""Kubernetes events about the node and its pods, as documents.

Owns the shape and the limits of an event's fields. Pure.
"""

from datetime import UTC, datetime
from random import Random
from typing import Any

from nodeagent.edge.kube.node_document import FIELD_MANAGER
from nodeagent.model.cluster import ClusterNode, NodeEvent

NOTE_MAX = 1024
"""In bytes: the API server counts bytes, and refuses a longer note."""
_MORE = "…"
_NAME_MAX = 63
_NAMESPACE = "default"
"""For events about objects without a namespace."""


def render_event(
    node: ClusterNode, event: NodeEvent, now_seconds: float, rng: Random, *, count: int = 1
) -> dict[str, Any]:
    """An event; several of a kind are one event with the number in the note."""
    note = event.note if count == 1 else f"{event.note} ({count} times since this was last told)"
    regarding = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    if event.pod is not None:
        pod = event.pod
        regarding |= {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # Names must differ: by a random part here, as `generateName` would leave the name to be read from the answer.
        "metadata": {
            "name": f"{regarding['name'][:_NAME_MAX].rstrip('-.')}.{rng.getrandbits(64):016x}",
            "namespace": find_namespace(event),
        },
        "eventTime": datetime.fromtimestamp(now_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"nvidia.com/{FIELD_MANAGER}",
        "reportingInstance": f"{FIELD_MANAGER}-{node.name}"[:128],
        "action": event.reason,
        "reason": event.reason,
        "type": "Warning" if event.warning else "Normal",
        "note": _cut(note),
        "regarding": regarding,
    }


def find_namespace(event: NodeEvent) -> str:
    """The namespace of an event: its pod's; one for all events about the node."""
    return event.pod.namespace if event.pod is not None else _NAMESPACE


def _cut(note: str) -> str:
    # Text from files and programs may have lone surrogates.
    content = note.encode("utf-8", "replace")
    if len(content) <= NOTE_MAX:
        return note
    return content[: NOTE_MAX - len(_MORE.encode())].decode("utf-8", "ignore") + _MORE
