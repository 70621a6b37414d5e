"""The Kubernetes events for facts, and how often they are written.

Owns reasons and sentences, and the budget that keeps a flapping GPU from filling the cluster's store.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from nodeagent.model.cluster import MIG_CONFIG_LABEL, NodeEvent
from nodeagent.model.cordons import CORDON_ANNOTATION, HAMI_CORDON_ANNOTATION, CordonSource
from nodeagent.model.driver import DriverPhase
from nodeagent.model.events import (
    AllocationDiffered,
    ConfigurationRejected,
    DriverChanged,
    GpuCordoned,
    GpuUncordoned,
    GpuVanished,
    LabelsContested,
    MigLayoutChanged,
    NodeRequestRefused,
    RuntimeConfigured,
    RuntimeRestarted,
    VerdictChanged,
)
from nodeagent.model.health import Verdict
from nodeagent.model.nvidia import VENDOR
from nodeagent.model.values import Value
from nodeagent.rules.ids import GONE, Names

_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GOOD = frozenset({Verdict.HEALTHY, Verdict.SUSPECT})


def render_event(fact: Value, names: Names) -> NodeEvent | None:
    """The event for a fact; `None` for a fact of no interest to people."""
    render = _RENDERERS.get(type(fact))
    event = render(fact) if render is not None else None
    return replace(event, note=_name_all(event.note, names)) if event is not None else None


def _name_all(note: str, names: Names) -> str:
    """Add to each device the number used by commands: people do not know GPUs by UUIDs alone."""
    return _UUID.sub(lambda found: _name(found[0], names), note)


def _name(uuid: str, names: Names) -> str:
    return f"{names[uuid].removesuffix(GONE)} ({uuid})" if uuid in names else uuid


def _describe_verdict(fact: VerdictChanged) -> NodeEvent | None:
    if fact.after is Verdict.UNHEALTHY:
        note = f"{fact.device} is unhealthy: {fact.reason}"
        return NodeEvent(reason="GPUUnhealthy", note=note, about=fact.device)
    if fact.before is Verdict.UNHEALTHY and fact.after in _GOOD:
        note = f"{fact.device} is fit for work again"
        return NodeEvent(reason="GPURecovered", note=note, warning=False, about=fact.device)
    return None


def _describe_vanished(fact: GpuVanished) -> NodeEvent:
    what = "is gone" if fact.is_gone else "does not answer"
    return NodeEvent(reason="GPULost", note=f"{fact.gpu} {what}: {fact.reason or 'no reason known'}", about=fact.gpu)


def _describe_driver(fact: DriverChanged) -> NodeEvent:
    if fact.after is DriverPhase.READY:
        return NodeEvent(reason="GPUDriverReady", note=f"the {VENDOR.name} driver works", warning=False)
    return NodeEvent(reason="GPUDriverNotReady", note=f"{fact.after}: {fact.detail}", about=fact.after)


def _describe_layout_change(fact: MigLayoutChanged) -> NodeEvent:
    note = f"the MIG devices of {fact.gpu} are others than before"
    return NodeEvent(reason="MIGLayoutChanged", note=note, warning=False, about=fact.gpu)


def _describe_allocation(fact: AllocationDiffered) -> NodeEvent | None:
    if fact.kind not in ("conflict", "forgotten"):
        return None
    devices = ", ".join(fact.devices)
    return NodeEvent(reason="GPUAllocationConflict", note=f"{fact.resource} {devices}: {fact.detail}", about=devices)


def _describe_rejected(fact: ConfigurationRejected) -> NodeEvent:
    return NodeEvent(reason="ConfigurationRejected", note="; ".join(fact.problems))


def _describe_configured(fact: RuntimeConfigured) -> NodeEvent:
    paths = ", ".join(fact.paths)
    return NodeEvent(reason="ContainerRuntimeConfigured", note=f"changed: {paths}", warning=False, about=paths)


def _describe_restarted(fact: RuntimeRestarted) -> NodeEvent:
    if fact.failure:
        return NodeEvent(reason="ContainerRuntimeRestartFailed", note=f"`{fact.command}`: {fact.failure}")
    return NodeEvent(reason="ContainerRuntimeRestarted", note=f"by `{fact.command}`", warning=False)


def _describe_contested(fact: LabelsContested) -> NodeEvent:
    keys = ", ".join(fact.keys)
    note = f"somebody else writes {keys} otherwise: nodeagent leaves it to them"
    return NodeEvent(reason="NodeLabelConflict", note=note, about=keys)


def _describe_refused(fact: NodeRequestRefused) -> NodeEvent:
    if fact.label == MIG_CONFIG_LABEL:
        return NodeEvent(reason="MIGConfigNotApplied", note=fact.reason, about=fact.value)
    if fact.label in (CORDON_ANNOTATION, HAMI_CORDON_ANNOTATION):
        return NodeEvent(reason="GPUCordonRefused", note=f"{fact.label}: {fact.reason}", about=fact.reason)
    return NodeEvent(reason="NamedConfigurationRefused", note=fact.reason)


def _describe_cordoned(fact: GpuCordoned) -> NodeEvent:
    note = f"{fact.gpu} is cordoned {fact.detail}"
    if fact.source is CordonSource.BRAKE:
        note = f"{note}; then a single pod may try it. `nodeagent gpu uncordon {fact.gpu}` on the node opens it at once"
        return NodeEvent(reason="GPUBraked", note=note, about=fact.gpu)
    return NodeEvent(reason="GPUCordoned", note=note, warning=False, about=fact.gpu)


def _describe_uncordoned(fact: GpuUncordoned) -> NodeEvent:
    note = f"{fact.gpu} is no longer cordoned by {fact.source}: {fact.reason}"
    return NodeEvent(reason="GPUUncordoned", note=note, warning=False, about=fact.gpu)


_RENDERERS: Mapping[type, Callable[[Any], NodeEvent | None]] = {
    VerdictChanged: _describe_verdict,
    GpuVanished: _describe_vanished,
    DriverChanged: _describe_driver,
    MigLayoutChanged: _describe_layout_change,
    AllocationDiffered: _describe_allocation,
    ConfigurationRejected: _describe_rejected,
    RuntimeConfigured: _describe_configured,
    RuntimeRestarted: _describe_restarted,
    LabelsContested: _describe_contested,
    NodeRequestRefused: _describe_refused,
    GpuCordoned: _describe_cordoned,
    GpuUncordoned: _describe_uncordoned,
}
TOLD = tuple(_RENDERERS)
AGAIN_SECONDS, EVENTS_MAX = 60.0, 20


class ReportedEvents(Value, frozen=True):
    """When events were last told, and how many of a kind were kept back since."""

    last: dict[tuple[str, str], float] = field(default_factory=dict)
    kept_back: dict[tuple[str, str], int] = field(default_factory=dict)
    recent: tuple[float, ...] = ()


def decide_reporting(told: ReportedEvents, event: NodeEvent, now_seconds: float) -> tuple[ReportedEvents, int]:
    """Whether to write the event now, as the number of its occurrences; 0 keeps it back.

    Events of the same reason and subject are written once in `AGAIN_SECONDS`, and all events `EVENTS_MAX` times in ten
    of these periods.
    """
    kind = (event.reason, event.about)
    recent = tuple(each for each in told.recent if now_seconds - each < 10 * AGAIN_SECONDS)
    count = told.kept_back.get(kind, 0) + 1
    last = told.last.get(kind)
    if len(recent) >= EVENTS_MAX or (last is not None and now_seconds - last < AGAIN_SECONDS):
        return ReportedEvents(last=told.last, kept_back=told.kept_back | {kind: count}, recent=recent), 0
    kept_back = {key: value for key, value in told.kept_back.items() if key != kind}
    fresh = {key: time for key, time in told.last.items() if now_seconds - time < 3600}
    return ReportedEvents(
        last=fresh | {kind: now_seconds},
        kept_back=kept_back,
        recent=(*recent, now_seconds),
    ), count
