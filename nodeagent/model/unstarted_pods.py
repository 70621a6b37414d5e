"""Pods of the node that have not started, as far as a refusal of the node can be read from the pods."""

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.values import Value


class UnstartedContainer(Value, frozen=True):
    """A container, or an init container, of such a pod."""

    name: str
    resources: frozenset[str] = frozenset()
    """The names of the limits."""
    waiting: str = ""
    """The kubelet's message about a container that waits."""
    has_run: bool = False


class UnstartedPod(Value, frozen=True):
    """A pod in neither of the phases `Running` and `Succeeded`."""

    pod: PodIdentity
    version: str
    phase: str
    reason: str = ""
    message: str = ""
    controller: str = ""
    """The kind of the controlling owner; empty without a controller."""
    is_static: bool = False
    """Whether the pod mirrors a file of the node."""
    is_going: bool = False
    """Whether the pod is being deleted."""
    containers: tuple[UnstartedContainer, ...] = ()

    @property
    def has_run(self) -> bool:
        """Whether a container of the pod has started."""
        return any(each.has_run for each in self.containers)
