"""The node as the cluster has it, and everything the agent publishes about the node."""

import re
from enum import StrEnum
from typing import ClassVar, Final, Literal

from msgspec import field

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.nvidia import DOMAIN, LABEL_PREFIX
from nodeagent.model.values import Value

READY_CONDITION = f"{DOMAIN}/GPUReady"
TERMINAL_ANNOTATION = f"{DOMAIN}/gpu.terminal-failure"
"""Why the node is given up for good."""
PREFIX = LABEL_PREFIX
DEVICE_PREFIX = "devices.nodeagent.io/"
"""Prefix of the label and condition of a device class; the class's word follows."""
GPU_FAULT_CONDITION = "nodeagent.io/GPUFault"
"""Type of the condition of a pod that holds a GPU, or a node, that failed."""
MIG_CONFIG_LABEL = f"{DOMAIN}/mig.config"
MIG_STATE_LABEL = f"{MIG_CONFIG_LABEL}.state"
MIG_UNDER_WAY = ("pending", "rebooting")
"""Values of the MIG state label while a layout is being applied."""
DEPLOY_LABEL = f"{DOMAIN}/gpu.deploy."
"""Prefix of the labels by which DaemonSets of operands choose nodes; the operand's name follows."""
PAUSED_FOR_MIG = "paused-for-mig-change"
PAUSED_FOR_UPGRADE = "paused-for-nodeagent-upgrade"
"""The agent's own value: the driver manager's, `paused-for-driver-upgrade`, has the agent itself let the driver go."""
_RELEASE = re.compile(r"v(\d{1,4})\.(\d{1,4})\b")

ConditionStatus = Literal["True", "False", "Unknown"]


class Taint(Value, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


BRAKE_TAINT: Final = Taint(key=f"{DOMAIN}/gpu-brake", effect="NoSchedule")


class NodeCondition(Value, frozen=True):
    """A condition of the node object, as people and schedulers' tools read it."""

    status: ConditionStatus
    reason: str
    message: str = ""
    type: str = READY_CONDITION


class ClusterNode(Value, frozen=True):
    """State: the node object, as far as the agent reads it; fields that change too often are left out."""

    name: str
    uid: str
    labels: dict[str, str] = field(default_factory=dict)
    owned_labels: tuple[str, ...] = ()
    """Keys of the labels set by the agent itself."""
    written_labels: tuple[str, ...] = ()
    """Keys of the labels that the agent has set singly, whoever had set them before."""
    written_annotations: tuple[str, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    """Annotations under `nvidia.com/`, those that cordon GPUs, and that which forbids a repair."""
    taints: tuple[Taint, ...] = ()
    condition: NodeCondition | None = None
    """The condition of GPUs."""
    device_conditions: tuple[NodeCondition, ...] = ()
    """Conditions under `devices.nodeagent.io/`."""
    other_conditions: tuple[NodeCondition, ...] = ()
    """All other conditions, of whatever program."""
    written_conditions: tuple[str, ...] = ()
    """Types of the conditions whose status the agent has written."""
    condition_writers: dict[str, str] = field(default_factory=dict)
    """The programs that have written the status of the others, by the condition's type."""
    is_going: bool = False
    """Whether the node object is being deleted."""
    kubelet_version: str = ""
    """The version of the node's kubelet, such as `v1.37.2`."""

    def has_taint(self, taint: Taint) -> bool:
        """Whether the node has the taint, with whatever value."""
        return any((each.key, each.effect) == (taint.key, taint.effect) for each in self.taints)

    @property
    def kubelet_release(self) -> tuple[int, int] | None:
        """Major and minor version of the kubelet; `None` where unknown."""
        found = _RELEASE.match(self.kubelet_version)
        return (int(found[1]), int(found[2])) if found else None


class NodeRequests(Value, frozen=True):
    """State: node requests, read from labels and annotations; each component reads its own."""

    shown_as: ClassVar[str] = "ClusterWishes"

    pause: str = ""
    """The label that requests the release of all GPU handles, as `key=value`; empty without a request."""
    configuration: str = ""
    """The requested named configuration; empty for the default."""
    mig_config: str = ""
    """The requested MIG layout; empty without a request."""
    mig_state: str = ""
    """The state reported by another MIG manager."""
    gpu_cordon: str = ""
    """The text of the annotation that cordons GPUs; empty without the annotation."""
    hami_cordon: str = ""
    """The text of HAMi's annotation that cordons GPUs."""


class ClusterLink(Value, frozen=True):
    """State: whether the API server can be reached, and if not, why."""

    reachable: bool
    detail: str = ""


class NodeEvent(Value, frozen=True):
    """A Kubernetes event about the node, shown by `kubectl describe node`; or about a pod of the node."""

    reason: str
    """In CamelCase; people filter by the reason."""
    note: str
    warning: bool = True
    about: str = ""
    """The subject of the event: events of the same kind about several subjects are counted apart."""
    pod: PodIdentity | None = None
    """The pod of an event about a pod."""


class EventSeries(Value, frozen=True):
    """An event on a pod that may happen again: one object in the API server, with the number of times."""

    event: NodeEvent
    pod: PodIdentity
    first_seconds: float
    last_seconds: float
    count: int = 1
    is_written: bool = False
    """Whether the API server has the object."""


class PodWriteCounts(Value, frozen=True):
    """What pods are told by the API server, counted since the agent started."""

    written: int = 0
    failed: int = 0
    """Requests that failed; most are made again."""
    dropped: int = 0
    """News given up: too many at once, refused for good, or too old when the API server came back."""
    waiting: int = 0
    """News yet to be written, now."""


class PodEventCounts(PodWriteCounts, frozen=True):
    """State: the events on pods about faults, counted since the agent started."""


class PodConditionCounts(PodWriteCounts, frozen=True):
    """State: the conditions of pods about faults, counted since the agent started."""


class ReceiptCounts(Value, frozen=True):
    """State: writes of receipts in containers, counted since the agent started."""

    written: int = 0
    """Receipts, again for each change."""
    failed: int = 0
    """Receipts of writes that failed, which are made again."""


class ApiCall(Value, frozen=True):
    """Kind of request to the API server, as requests are counted."""

    verb: str
    """The method; `WATCH` for a watch."""
    outcome: str
    """The answer's status, or `none` for no answer or half an answer."""


class Eviction(StrEnum):
    """The API server's answer to an eviction."""

    ASKED = "asked"
    """The pod goes when its grace period is over at the latest."""
    GONE = "gone"
    """The pod is gone, or replaced by another of the same name."""
    BLOCKED = "blocked"
    """A disruption budget forbids the eviction at the moment."""
    SEVERAL_BUDGETS = "several_budgets"
    """More than one disruption budget is about the pod, for which the API server evicts nothing."""
    CHANGED = "changed"
    """The pod has changed since it was read."""


class PodLabels(Value, frozen=True):
    """The labels of a pod."""

    namespace: str
    pod: str
    uid: str
    labels: dict[str, str] = field(default_factory=dict)


class PodLabelTable(Value, frozen=True):
    """State: the labels of all pods on the node, while `metrics.pod_labels` asks for them."""

    pods: tuple[PodLabels, ...] = ()


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


class ValidationPod(Value, frozen=True):
    """The pod that validates the node, as the API server shows it."""

    phase: str
    reason: str = ""
    message: str = ""
    """The words of the kubelet and of the container."""
