"""`repairs.slots`: how many nodes of a rack, a pool or the cluster are repaired at once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodeagent.config.compound import ListOf, Nested
from nodeagent.config.kinds import Maybe, Whole
from nodeagent.config.knobs import Section, knob, required
from nodeagent.config.sections.cluster import LABEL_KEY, NAMESPACE
from nodeagent.model.slots import CLUSTER

if TYPE_CHECKING:
    from nodeagent.config.schema import Settings

SLOTS_MAX = 100


class SlotDomainSettings(Section):
    """Nodes with the same value of a label, of which only so many are repaired at once."""

    label: str = required(
        LABEL_KEY, "the key of the label whose value names the node's domain; `cluster` for all nodes"
    )
    slots: int = required(Whole(1, SLOTS_MAX), "how many nodes of one value are repaired at once: so many Leases stand")


class SlotsSettings(Section):
    """The slots of repairs."""

    domains: tuple[SlotDomainSettings, ...] = knob(
        ListOf(Nested(SlotDomainSettings)),
        (),
        "the domains in which a repair takes a slot each, narrow to wide; without any each node repairs by itself",
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
