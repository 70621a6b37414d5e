"""`signals.node_conditions`, `signals.nvsentinel`, and parts of `repairs`: repairs, by other programs and by the agent.

Owns the rule for types of node conditions: a type has one writer and one meaning.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nodeagent.config.compound import ListOf, Nested
from nodeagent.config.kinds import (
    LABEL_KEY,
    NAMESPACE,
    QUALIFIED_NAME,
    AbsolutePath,
    Flag,
    Maybe,
    Number,
    OneOf,
    Text,
    Whole,
)
from nodeagent.config.knobs import Section, knob, required
from nodeagent.model.cluster import DEVICE_PREFIX
from nodeagent.model.nvidia import LABEL_PREFIX
from nodeagent.model.slots import CLUSTER

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
        Text("the type of a node condition such as AcceleratedHardwareReady", QUALIFIED_NAME, 316),
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


class RebootAnnotation(Section):
    """The annotation of the node that requests a reboot."""

    key: str = knob(
        Text("an annotation's key, such as example.com/reboot", QUALIFIED_NAME, 317),
        "nodeagent.io/reboot-requested",
        "the key of the annotation; the agent removes the annotation after the boot",
        "a key of the agent's own disturbs no other program",
    )
    value: str = knob(
        Text("an annotation's value", r".*", 1024),
        "",
        "the value of the annotation; empty for the number and the cause of the session",
        "some programs look for a value of their own",
    )


class RebootWebhook(Section):
    """The server that is asked for a reboot."""

    url: str = knob(
        Text("an https URL without user and password", r"(https://[^\s/@?#]+(/[^\s@#]*)?)?", 2048),
        "",
        "where the request is posted as a JSON document; an answer 2xx is a yes, and no redirect is followed",
        "no URL fits every cluster",
    )
    token_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a file with a bearer token, read for each request; empty for none",
        "the token is no part of a configuration that many read",
    )
    ca_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a file with the only authorities that are trusted; empty for those of the system",
        "a server in the cluster has a certificate of its own authority",
    )
    timeout_seconds: float = knob(
        Number(1, 300),
        30.0,
        "how long the server may take to answer",
        "whoever reboots nodes may ask another program first",
        reload=True,
    )


def judge_reboot(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message. A setting of a channel that is not in use is a mistake."""
    repairs = settings.repairs
    by = repairs.reboot_by
    if by == "command" and not repairs.reboot_command:
        yield "repairs.reboot_command", "repairs.reboot_by: command has no command to run; name one"
    if repairs.reboot_command and by != "command":
        yield "repairs.reboot_command", f"repairs.reboot_by is {by}: set it to command, or leave the command out"
    if repairs.reboot_annotation != RebootAnnotation() and by != "node_annotation":
        message = f"repairs.reboot_by is {by}: set it to node_annotation, or leave the annotation out"
        yield "repairs.reboot_annotation", message
    if by == "webhook" and not repairs.reboot_webhook.url:
        yield "repairs.reboot_webhook.url", "repairs.reboot_by: webhook has no URL to post to; name one"
    if repairs.reboot_webhook != RebootWebhook() and by != "webhook":
        yield "repairs.reboot_webhook", f"repairs.reboot_by is {by}: set it to webhook, or leave the webhook out"
    if by == "node_annotation" and settings.kubernetes.enabled == "false":
        message = "kubernetes.enabled is false: nobody annotates the node; choose another channel"
        yield "repairs.reboot_by", message


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


SLOTS_MAX: Final = 100


class SlotDomainSettings(Section):
    """Nodes with the same value of a label, of which only so many are repaired or upgraded at once."""

    label: str = required(
        LABEL_KEY, "the key of the label whose value names the node's domain; `cluster` for all nodes"
    )
    slots: int = required(
        Whole(1, SLOTS_MAX), "how many nodes of one value are repaired or upgraded at once: so many Leases stand"
    )


class SlotsSettings(Section):
    """The slots of repairs."""

    domains: tuple[SlotDomainSettings, ...] = knob(
        ListOf(Nested(SlotDomainSettings)),
        (),
        "the domains in which a repair or an upgrade of the driver takes a slot each, narrow to wide; without any each"
        " node acts by itself",
        "racks and pools have other labels in each cluster, and the Leases have to stand before",
    )
    namespace: str | None = knob(
        Maybe(NAMESPACE),
        None,
        "the namespace of the Leases; empty means that of `kubernetes.namespace`",
        "the chart makes the Leases beside the agent",
    )


def judge_slots(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message."""
    domains = settings.repairs.slots.domains
    for index, each in enumerate(domains):
        path = f"repairs.slots.domains[{index}].label"
        if each.label in {earlier.label for earlier in domains[:index]}:
            yield path, f"{each.label} is there already, and a repair takes one slot of it; leave it out"
        elif each.label == CLUSTER and each is not domains[-1]:
            yield path, "the domain of all nodes is the widest; give it last"
    if domains and settings.kubernetes.enabled == "false":
        message = "slots are Leases of the API server, and kubernetes.enabled is false; give no domain, or auto there"
        yield "repairs.slots.domains", message
