"""Pods and nodes as the API server and kube-scheduler write the documents, reduced to the fields for the extender.

Owns the shape of the documents, as types: fields not named here are skipped without being decoded, nine tenths of a
pod. Pure: no communication.
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from nodeagent.model.scheduling import FINISHED_PHASES, SeenContainer, SeenNode, SeenPod

D = TypeVar("D")
_SIDECAR: Final = "Always"


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    annotations: dict[str, str] | None = None


class _Resources(Struct, frozen=True):
    limits: dict[str, str | int | float] | None = None


class _Container(Struct, frozen=True, rename="camel"):
    name: str = ""
    resources: _Resources | None = None
    restart_policy: str | None = None


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _PodStatus(Struct, frozen=True):
    phase: str | None = None


class _Pod(Struct, frozen=True):
    metadata: _Metadata
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


class _NodeStatus(Struct, frozen=True):
    capacity: dict[str, str | int | float] | None = None


class _Node(Struct, frozen=True):
    metadata: _Metadata
    status: _NodeStatus | None = None


class Version(Struct, frozen=True):
    """The version of any object."""

    metadata: _Metadata

    @property
    def version(self) -> str:
        """The resource version."""
        return self.metadata.resource_version


def parse_pod(content: bytes | msgspec.Raw) -> SeenPod:
    """A pod.

    Raises:
        ValueError: the document is no pod, or lacks the uid that tells pods of the same name apart.
    """
    document = decode_as(content, _Pod, "a pod")
    metadata, spec = document.metadata, document.spec or _PodSpec()
    for what, value in (("name", metadata.name), ("namespace", metadata.namespace), ("uid", metadata.uid)):
        if not value:
            raise ValueError(f"the pod {metadata.name or metadata.uid or 'asked about'} has no {what}")
    return SeenPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        node=spec.node_name or "",
        created=metadata.creation_timestamp or "",
        annotations=metadata.annotations or {},
        containers=tuple(_read_container(each, is_init=False) for each in spec.containers or ()),
        init_containers=tuple(_read_container(each, is_init=True) for each in spec.init_containers or ()),
        is_finished=document.status is not None and document.status.phase in FINISHED_PHASES,
        is_forced=metadata.deletion_timestamp is not None and metadata.deletion_grace_period_seconds == 0,
    )


def parse_node(content: bytes | msgspec.Raw) -> SeenNode:
    """A node.

    Raises:
        ValueError: the document is no node.
    """
    document = decode_as(content, _Node, "a node")
    if not document.metadata.name:
        raise ValueError("a node has no name")
    capacity = (document.status or _NodeStatus()).capacity
    return SeenNode(
        name=document.metadata.name,
        annotations=document.metadata.annotations or {},
        capacity=_read_quantities(capacity),
    )


def decode_as(content: bytes | msgspec.Raw, kind: type[D], what: str) -> D:
    """A document of the kind.

    Raises:
        ValueError: the document is of another kind; `what` is the expected kind in words.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not {what}: {error}") from error


def _read_container(container: _Container, *, is_init: bool) -> SeenContainer:
    limits = (container.resources or _Resources()).limits
    return SeenContainer(
        name=container.name,
        limits=_read_quantities(limits),
        is_sidecar=is_init and container.restart_policy == _SIDECAR,
    )


def _read_quantities(quantities: dict[str, Any] | None) -> dict[str, str]:
    """By name; names without a domain, such as `cpu`, are left out, as no GPU has such a name."""
    return {name: str(quantity) for name, quantity in (quantities or {}).items() if "/" in name}
