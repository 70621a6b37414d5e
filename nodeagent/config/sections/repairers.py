"""`signals.node_conditions`, `signals.nvsentinel` and `repairs.drain`: repairs, by other programs and by the agent.

Owns the rule for types of node conditions: a type has one writer and one meaning.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nodeagent.config.kinds import AbsolutePath, Flag, Number, OneOf, Text
from nodeagent.config.knobs import Section, knob, required
from nodeagent.model.cluster import DEVICE_PREFIX
from nodeagent.model.nvidia import LABEL_PREFIX

if TYPE_CHECKING:
    from nodeagent.config.schema import Settings

Polarity: TypeAlias = Literal["healthy", "faulty"]
LeastSeverity: TypeAlias = Literal["critical", "warn"]
AfterDeadline: TypeAlias = Literal["stop", "delete_where_dead"]
Strategy: TypeAlias = Literal["store_only", "execute"]

KUBERNETES_TYPES: Final = frozenset(
    {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "OutOfDisk"}
)
"""Node conditions of the kubelet and of the cloud's network."""
_OWN_PREFIXES: Final = (LABEL_PREFIX, DEVICE_PREFIX, "nodeagent.io/")


class NodeConditionSettings(Section):
    """A node condition for a program that repairs or replaces nodes."""

    type: str = required(
        Text(
            "the type of a node condition such as AcceleratedHardwareReady",
            r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
            316,
        ),
        "the type of the condition that the other program reads",
    )
    true_means: Polarity = required(
        OneOf[Polarity](("healthy", "faulty")),
        "the polarity: what status True says of the GPUs; EKS and Karpenter read True as healthy, programs beside"
        " node-problem-detector read True as faulty",
    )
    severity: LeastSeverity = knob(
        OneOf[LeastSeverity](("critical", "warn")),
        "critical",
        "the least severity of a fault that the condition tells: `critical` for GPUs out of service, `warn` for GPUs"
        " that need attention, too",
        "who reads such a condition may replace the node",
    )


class NvsentinelSettings(Section):
    """Faults of GPUs, told to NVSentinel's platform connector."""

    enabled: bool = knob(
        Flag(),
        default=False,
        what="tell NVSentinel of each fault of a GPU and of its end",
        why="only clusters with NVSentinel have the socket",
    )
    socket: Path = knob(
        AbsolutePath(),
        Path("/var/run/nvsentinel/nvsentinel.sock"),
        "the socket of the platform connector of this node",
        "where NVSentinel's chart has it on the host",
    )
    strategy: Strategy = knob(
        OneOf[Strategy](("store_only", "execute")),
        "store_only",
        "what NVSentinel may do with the faults: store them, or also cordon, drain and repair the node, where the agent"
        " reads in the API server that NVSentinel has not left this node to another program",
        "a second opinion on the same GPUs must not move pods before somebody has compared both",
        reload=True,
    )


class DrainSettings(Section):
    """How pods leave a GPU before the agent repairs it."""

    wait_seconds: float = knob(
        Number(0, 86400),
        60.0,
        "from the closing of the GPUs, of whose fault the pods have been told, to the first eviction",
        "a program that reads the fault has time to end in its own way",
        reload=True,
    )
    deadline_seconds: float = knob(
        Number(1, 604800),
        1800.0,
        "from the closing of the GPUs to the decision about the pods that are still there",
        "a disruption budget of a single replica blocks for ever; half an hour lets most others move",
        reload=True,
    )
    after_deadline: AfterDeadline = knob(
        OneOf[AfterDeadline](("stop", "delete_where_dead")),
        "stop",
        "stop: ask nobody any more and wait for a person; delete_where_dead: delete the pods whose GPU is dead,"
        " whatever their disruption budgets say, and ask nobody else",
        "a deletion passes disruption budgets by; a GPU that merely waits for a reset still serves its pod",
        reload=True,
    )


def judge_drain(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message."""
    drain = settings.repairs.drain
    if drain.wait_seconds >= drain.deadline_seconds:
        message = (
            f"after {drain.wait_seconds:g} s the deadline of {drain.deadline_seconds:g} s is over, and no pod would be"
            " asked to leave; give less than repairs.drain.deadline_seconds"
        )
        yield "repairs.drain.wait_seconds", message
    if drain.after_deadline == "delete_where_dead" and settings.kubernetes.delete_refused_pods:
        message = (
            "with kubernetes.delete_refused_pods a policy lets the agent delete no pod that has started; give stop, or"
            " leave kubernetes.delete_refused_pods empty"
        )
        yield "repairs.drain.after_deadline", message


def judge_node_conditions(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message."""
    configured = settings.signals.node_conditions
    counts = Counter(each.type for each in configured)
    for index, each in enumerate(configured):
        path = f"signals.node_conditions[{index}].type"
        if each.type in KUBERNETES_TYPES:
            yield path, f"{each.type} is a condition of the kubelet or of the cloud; give a type of another program"
        if each.type.startswith(_OWN_PREFIXES):
            yield path, f"the agent keeps {each.type} itself, in a meaning of its own; give a type of another program"
        if counts[each.type] > 1:
            message = (
                f"{each.type} is there {counts[each.type]} times, and a condition has one status; leave one of them"
            )
            yield path, message
