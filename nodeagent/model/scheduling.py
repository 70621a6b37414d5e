"""Pods and nodes of the whole cluster, as far as a scheduler's extender reads them."""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from nodeagent.model.values import Value

FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Final phases of a pod; node and extender free the pod's fractions by the same phases."""


class SeenContainer(Value, frozen=True):
    """A container of a pod's specification."""

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    is_sidecar: bool = False
    """Whether the container is an init container that goes on running beside the containers after it."""


class SeenPod(Value, frozen=True):
    """A pod as the API server has it."""

    namespace: str
    name: str
    uid: str
    version: str = ""
    """The version of the object; of two versions from the same server the later is the greater number."""
    node: str = ""
    """The node of the pod; empty before binding."""
    created: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[SeenContainer, ...] = ()
    init_containers: tuple[SeenContainer, ...] = ()
    is_finished: bool = False
    """Whether no container of the pod will run any more."""
    is_forced: bool = False
    """Whether the pod is deleted without waiting for its containers."""


class SeenNode(Value, frozen=True):
    """A node as the API server has it."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


class SeenLease(Value, frozen=True):
    """The leader's lease, as the API server has it."""

    version: str
    """Changed by each write: a changing version proves that the holder lives."""
    holder: str = ""
    seconds: float = 0.0
    """How long the lease is held without a renewal."""
    acquired: str = ""
    transitions: int = 0
