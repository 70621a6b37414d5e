"""Pods and nodes of the whole cluster, as far as a scheduler's extender looks at them."""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from nodeagent.model.values import Value

FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Those of a pod of which nothing will run any more; the node and the extender free what it had by the same word."""


class SeenContainer(Value, frozen=True):
    """One container of a pod's specification."""

    name: str
    limits: Mapping[str, str] = field(default_factory=dict)
    is_sidecar: bool = False
    """An init container that goes on running beside the containers after it."""


class SeenPod(Value, frozen=True):
    """A pod as the API server has it."""

    namespace: str
    name: str
    uid: str
    version: str = ""
    """The version of the object; of two of the same server the later one is the greater number."""
    node: str = ""
    """Where it is bound to; empty while it is nowhere."""
    created: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[SeenContainer, ...] = ()
    init_containers: tuple[SeenContainer, ...] = ()
    is_finished: bool = False
    """Whether nothing of it will run any more."""
    is_forced: bool = False
    """Whether it is deleted without waiting for its containers."""


class SeenNode(Value, frozen=True):
    """A node as the API server has it."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


class SeenLease(Value, frozen=True):
    """Who leads, as the API server has it."""

    version: str
    """Another one whenever somebody wrote it: that it changes is what shows that its holder lives."""
    holder: str = ""
    seconds: float = 0.0
    """How long it is held without being written again."""
    acquired: str = ""
    transitions: int = 0
