"""Kubernetes events about the node and its pods, as documents.

Owns the shape and the limits of an event's fields. Pure.
"""

import hashlib
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeAlias

from nodeagent.edge.kube.node_document import FIELD_MANAGER
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import ClusterNode, EventSeries, NodeEvent

Reference: TypeAlias = dict[str, str]

NOTE_MAX = 1024
"""In bytes: the API server counts bytes, and refuses a longer note."""
_MORE = "…"
_NAME_MAX = 63
_INSTANCE_MAX = 128
_NAMESPACE = "default"
"""For events about objects without a namespace."""


def render_event(
    node: ClusterNode, event: NodeEvent, now_seconds: float, rng: Random, *, count: int = 1
) -> dict[str, Any]:
    """An event; several of a kind are one event with the number in the note."""
    note = event.note if count == 1 else f"{event.note} ({count} times since this was last told)"
    regarding = _refer_to_pod(event.pod) if event.pod is not None else _refer_to_node(node)
    # Names must differ: by a random part here, as `generateName` would leave the name to be read from the answer.
    suffix = f"{rng.getrandbits(64):016x}"
    document = _render(event, regarding, find_namespace(event), suffix, now_seconds)
    return document | {"note": _cut(note), "reportingInstance": f"{FIELD_MANAGER}-{node.name}"[:_INSTANCE_MAX]}


def render_series(node_name: str, series: EventSeries) -> dict[str, Any]:
    """An event that may repeat, reported by the node itself: readers trust the pod's own node alone.

    The name follows from pod and subject, so that another life of the agent finds the same object.
    """
    event, pod = series.event, series.pod
    subject = f"{pod.uid} {event.reason} {event.about}"
    suffix = hashlib.sha256(subject.encode()).hexdigest()[:16]
    document = _render(event, _refer_to_pod(pod), pod.namespace, suffix, series.first_seconds)
    document |= {"note": _cut(event.note), "reportingInstance": node_name[:_INSTANCE_MAX]}
    return document | render_repetitions(series) if series.count > 1 else document


def render_repetitions(series: EventSeries) -> dict[str, Any]:
    """The part of a repeated event that changes; the API server takes no count below 2."""
    return {"series": {"count": max(2, series.count), "lastObservedTime": _render_time(series.last_seconds)}}


def _render(event: NodeEvent, regarding: Reference, namespace: str, suffix: str, at_seconds: float) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{regarding['name'][:_NAME_MAX].rstrip('-.')}.{suffix}", "namespace": namespace},
        "eventTime": _render_time(at_seconds),
        "reportingController": f"nvidia.com/{FIELD_MANAGER}",
        "action": event.reason,
        "reason": event.reason,
        "type": "Warning" if event.warning else "Normal",
        "regarding": regarding,
    }


def _refer_to_node(node: ClusterNode) -> Reference:
    return {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}


def _refer_to_pod(pod: PodIdentity) -> Reference:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def _render_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def find_namespace(event: NodeEvent) -> str:
    """The namespace of an event: its pod's; one for all events about the node."""
    return event.pod.namespace if event.pod is not None else _NAMESPACE


def _cut(note: str) -> str:
    # Text from files and programs may have lone surrogates.
    content = note.encode("utf-8", "replace")
    if len(content) <= NOTE_MAX:
        return note
    return content[: NOTE_MAX - len(_MORE.encode())].decode("utf-8", "ignore") + _MORE
