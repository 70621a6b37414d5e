"""Whether the agents of a whole cluster, and the GPUs of their nodes, are ready."""

from typing import Final

from msgspec import field

from nodeagent.model.cluster import ConditionStatus, NodeCondition
from nodeagent.model.values import Value

CLUSTER_CONDITION: Final = "nodeagent.io/Ready"
"""Type of the condition on the agents' DaemonSet, for `kubectl wait`."""
AGENT_LABEL: Final = "app.kubernetes.io/name"
AGENT_NAME: Final = "nodeagent"
"""The value of the label on the agents' DaemonSets and pods, and the name of the chart's DaemonSet."""


class ClusterCondition(Value, frozen=True):
    """The condition of a DaemonSet: whether every agent and the GPUs of every node are ready."""

    status: ConditionStatus
    reason: str
    message: str


class AgentDaemonSet(Value, frozen=True):
    """A DaemonSet of agents, as the API server has it."""

    uid: str
    namespace: str
    name: str
    version: int = 0
    """The version of the object; of two versions from the same server the later is the greater number."""
    generation: int = 0
    observed_generation: int = 0
    """The newest specification seen by the DaemonSet controller."""
    desired: int = 0
    """The number of nodes chosen by the DaemonSet controller."""
    updated: int = 0
    """The number of nodes whose pod has the newest specification."""
    condition: ClusterCondition | None = None


class AgentPod(Value, frozen=True):
    """A pod of an agent, as the API server has it."""

    uid: str
    namespace: str
    name: str
    owner: str = ""
    """The uid of the pod's DaemonSet."""
    node: str = ""
    """The node of the pod, also before binding: the DaemonSet controller makes each pod for one node."""
    image_tag: str = ""
    is_ready: bool = False
    is_ending: bool = False
    trouble: str = ""
    """Why the pod is not ready, in the words of kubelet or scheduler; empty if neither says why."""


class FleetNode(Value, frozen=True):
    """A node, as far as the readiness of its GPUs is concerned."""

    name: str
    has_gpus: bool = False
    """Whether a label says that the node has GPUs."""
    model: str = ""
    """The model of the node's GPUs, by label."""
    is_kubelet_ready: bool = False
    condition: NodeCondition | None = None
    """The agent's condition of the node's GPUs."""


class UnreadyNode(Value, frozen=True):
    """A node that is not ready, the reason, and what to do."""

    name: str
    reason: str
    """In CamelCase, as the reasons of conditions."""
    message: str
    remedy: str


class Readiness(Value, frozen=True):
    """Whether a DaemonSet's agents and their nodes' GPUs are ready, and if not, which are not and why."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    nodes: int = 0
    ready_nodes: int = 0
    nodes_without_gpus: int = 0
    """Of the ready nodes, those whose agent waits for a first GPU."""
    impaired_nodes: tuple[str, ...] = ()
    """Ready nodes with some unhealthy GPUs."""
    nodes_without_agent: int = 0
    """Chosen nodes for which the DaemonSet controller has made no pod."""
    unready_nodes: tuple[UnreadyNode, ...] = ()
    versions: dict[str, int] = field(default_factory=dict)
    """The number of ready nodes by the tag of the agent's image."""
    models: dict[str, int] = field(default_factory=dict)
    """The number of ready nodes by GPU model."""
