"""This node as the cluster has it, and what the agent tells the cluster about it."""

from enum import StrEnum
from typing import Literal

from msgspec import field

from nodeagent.model.values import Value

READY_CONDITION = "nvidia.com/GPUReady"
PREFIX = "nvidia.com/"
DEVICE_PREFIX = "devices.nodeagent.io/"
"""Before the word that a class of devices of another kind has for its label, and for its condition."""
MIG_CONFIG_LABEL = "nvidia.com/mig.config"
MIG_STATE_LABEL = f"{MIG_CONFIG_LABEL}.state"
MIG_UNDER_WAY = ("pending", "rebooting")
"""What that label says while a layout is being brought about."""
DEPLOY_LABEL = "nvidia.com/gpu.deploy."
"""Before the name of a part: the label by which its DaemonSet chooses nodes."""
PAUSED_FOR_MIG = "paused-for-mig-change"

ConditionStatus = Literal["True", "False", "Unknown"]


class Taint(Value, frozen=True):
    """What keeps pods away from a node."""

    key: str
    effect: str
    value: str = ""


class NodeCondition(Value, frozen=True):
    """A condition of the node object, as people and schedulers' tools read it."""

    status: ConditionStatus
    reason: str
    message: str = ""
    type: str = READY_CONDITION


class ClusterNode(Value, frozen=True):
    """State: this node's object, as far as the agent reads it; what else it says changes too often to be told."""

    name: str
    uid: str
    labels: dict[str, str] = field(default_factory=dict)
    owned_labels: tuple[str, ...] = ()
    """Keys of the labels that the agent itself put there."""
    written_labels: tuple[str, ...] = ()
    """Keys of the labels that it has set one by one, whoever had set them before."""
    written_annotations: tuple[str, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    """Those under `nvidia.com/`."""
    taints: tuple[Taint, ...] = ()
    condition: NodeCondition | None = None
    """That of GPUs."""
    device_conditions: tuple[NodeCondition, ...] = ()
    """Those under `devices.nodeagent.io/`."""


class ClusterWishes(Value, frozen=True):
    """State: what the cluster asks of this node by its labels; whoever a wish concerns reads it here."""

    pause: str = ""
    """The label that wants all GPU handles released, as `key=value`; empty when none does."""
    configuration: str = ""
    """The named configuration that is to be in force; empty for the default one."""
    mig_config: str = ""
    """How the GPUs are to be partitioned; empty for no wish."""
    mig_state: str = ""
    """What another MIG manager says of carrying that out."""


class ClusterLink(Value, frozen=True):
    """State: whether the API server can be reached, and if not, why."""

    reachable: bool
    detail: str = ""


class NodeEvent(Value, frozen=True):
    """A Kubernetes event about this node, for whoever runs `kubectl describe node`."""

    reason: str
    """In CamelCase; people filter by it."""
    note: str
    warning: bool = True
    about: str = ""
    """Which of several things it is about, so that many of one kind are told apart when they are counted."""


class ApiCall(Value, frozen=True):
    """One kind of request to the API server, as they are counted."""

    verb: str
    """The method; `WATCH` for a watch."""
    outcome: str
    """The answer's status, or `none` where there was no answer, or half of one."""


class Eviction(StrEnum):
    """What the API server answers to whoever asks a pod to go."""

    ASKED = "asked"
    """It goes when its grace period is over at the latest."""
    GONE = "gone"
    """It is not there any more, or is another of the same name."""
    BLOCKED = "blocked"
    """A disruption budget allows it no more at the moment."""


class PodLabels(Value, frozen=True):
    """What somebody has labelled a pod with."""

    namespace: str
    pod: str
    uid: str
    labels: dict[str, str] = field(default_factory=dict)


class PodLabelTable(Value, frozen=True):
    """State: the labels of all pods on this node, while `metrics.pod_labels` asks for them."""

    pods: tuple[PodLabels, ...] = ()
