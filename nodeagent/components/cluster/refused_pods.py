"""Pods refused by the node, and the refused pods to delete now, so that their controllers make other pods. Pure.

Owns the meaning of the kubelet's words on a refusal, and the limit of deletions.
Refuses pods without a controller, pods that have run, and refusals that are perhaps about another plugin's resource.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import field
from msgspec.structs import replace

from nodeagent.config.sections.cluster import RefusedPhase
from nodeagent.model.cluster import NodeEvent, UnstartedPod
from nodeagent.model.values import Value

EVENT_REASON: Final = "RefusedPodDeleted"
PERIOD_SECONDS: Final = 600.0
"""The period in which deletions are counted."""
AGAIN_SECONDS: Final = 300.0
"""After a failed request for a deletion."""
_AT_ADMISSION: Final = "UnexpectedAdmissionError"
_AT_START: Final = "PreStartContainer"
_PLUGIN_CALL: Final = "rpc error"
"""In messages about the failed call of a device plugin, which may not name the resource."""
_RESOURCE: Final = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9._-]*[A-Za-z0-9]")
_SPARED: Final = frozenset({"DaemonSet", "Node", "Pod"})
"""Controllers whose pods stay: a DaemonSet replaces its failed pods itself, with growing pauses, and on the same node;
a Node has static pods; a Pod is no controller that makes another."""
_NAMED: Final = 5


class Refusal(Value, frozen=True):
    """A pod refused by the node."""

    pod: UnstartedPod
    reason: str
    """The kubelet's words."""
    is_final: bool
    """Whether the kubelet has given the pod up; otherwise the kubelet tries again."""

    def render_event(self) -> NodeEvent:
        """The Kubernetes event on the pod."""
        note = f"nodeagent deletes this pod, so that its {self.pod.controller} makes another: {self.reason}"
        return NodeEvent(reason=EVENT_REASON, note=note, pod=self.pod.pod)


class Attempt(Value, frozen=True):
    """The last request for the deletion of a pod."""

    version: str
    again_at: float = math.inf
    """When to ask again for the pod in the same version: never after an answer."""
    trouble: str = ""
    """Why there was no answer, or another than expected."""


class DeletionHistory(Value, frozen=True):
    """Refusals seen and deletions asked for, as far as a decision needs them; pods by uid."""

    since: Mapping[str, float] = field(default_factory=dict)
    """Since when each pod is refused."""
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    deleted: tuple[float, ...] = ()
    """When pods were deleted."""

    def note_answer(self, refusal: Refusal, *, is_deleted: bool, now_seconds: float) -> "DeletionHistory":
        """The history after a deletion, or after the answer that the pod is gone or has changed."""
        after = self._note(refusal, Attempt(version=refusal.pod.version))
        return replace(after, deleted=(*self.deleted, now_seconds)) if is_deleted else after

    def note_trouble(self, refusal: Refusal, trouble: str, now_seconds: float) -> "DeletionHistory":
        """The history after a failed request."""
        again_at = now_seconds + AGAIN_SECONDS
        return self._note(refusal, Attempt(version=refusal.pod.version, again_at=again_at, trouble=trouble))

    def _note(self, refusal: Refusal, attempt: Attempt) -> "DeletionHistory":
        return replace(self, attempts={**self.attempts, refusal.pod.pod.uid: attempt})


class DeletionPlan(Value, frozen=True):
    """The pods to delete now, those beyond the limit, and the seconds until the next look; `None` until news."""

    due: tuple[Refusal, ...] = ()
    left: tuple[Refusal, ...] = ()
    wait_seconds: float | None = None


def find_refusals(
    pods: Iterable[UnstartedPod], served: Collection[str], wanted: Collection[RefusedPhase]
) -> dict[str, Refusal]:
    """The refused pods that may be deleted, by uid; `served` are the agent's own resources."""
    found = ((pod.pod.uid, _find_refusal(pod, served, wanted)) for pod in pods)
    return {uid: refusal for uid, refusal in found if refusal is not None}


def forget_old(history: DeletionHistory, refusals: Mapping[str, Refusal], now_seconds: float) -> DeletionHistory:
    """The history of the present refusals alone, and the deletions of the period."""
    return DeletionHistory(
        since={uid: history.since.get(uid, now_seconds) for uid in refusals},
        attempts={uid: attempt for uid, attempt in history.attempts.items() if uid in refusals},
        deleted=tuple(each for each in history.deleted if now_seconds - each < PERIOD_SECONDS),
    )


def plan_deletions(
    refusals: Mapping[str, Refusal],
    history: DeletionHistory,
    wait_seconds: float,
    deletions_max: int,
    now_seconds: float,
) -> DeletionPlan:
    """The plan by a history without old entries: the longest refused pods first."""
    ripe_at = {uid: _find_ripe_at(uid, each, history, wait_seconds) for uid, each in refusals.items()}
    ripe = sorted((uid for uid, at in ripe_at.items() if at <= now_seconds), key=history.since.__getitem__)
    room = max(deletions_max - len(history.deleted), 0)
    due, left = ([refusals[uid] for uid in uids] for uids in (ripe[:room], ripe[room:]))
    later = [at - now_seconds for at in ripe_at.values() if now_seconds < at < math.inf]
    if left and history.deleted:
        later.append(history.deleted[0] + PERIOD_SECONDS - now_seconds)
    return DeletionPlan(due=tuple(due), left=tuple(left), wait_seconds=min(later, default=None))


def describe_left(left: Sequence[Refusal], history: DeletionHistory, deletions_max: int) -> str:
    """The detail of the condition: failed requests, and the pods beyond the limit with their refusals."""
    parts = [each.trouble for each in history.attempts.values() if each.trouble][:_NAMED]
    if left:
        pods = ", ".join(f"{each.pod.pod.describe()} ({each.reason})" for each in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        period = f"{PERIOD_SECONDS / 60:g} minutes"
        parts.append(f"{deletions_max} pods deleted in {period}, more wait (kubernetes.refused_pods_max): {pods}{more}")
    return "; ".join(parts)


def _find_ripe_at(uid: str, refusal: Refusal, history: DeletionHistory, wait_seconds: float) -> float:
    at = history.since[uid] + (0.0 if refusal.is_final else wait_seconds)
    attempt = history.attempts.get(uid)
    if attempt is None or attempt.version != refusal.pod.version:
        return at
    return max(at, attempt.again_at)


def _find_refusal(pod: UnstartedPod, served: Collection[str], wanted: Collection[RefusedPhase]) -> Refusal | None:
    if not pod.controller or pod.controller in _SPARED or pod.is_static or pod.is_going or pod.has_run:
        return None
    if pod.phase == "Failed" and "failed" in wanted and pod.reason == _AT_ADMISSION:
        asked = frozenset[str]().union(*(each.resources for each in pod.containers))
        return Refusal(pod=pod, reason=pod.message, is_final=True) if _is_about(pod.message, asked, served) else None
    if pod.phase == "Pending" and "pending" in wanted:
        for each in pod.containers:
            if _AT_START in each.waiting and _is_about(each.waiting, each.resources, served):
                return Refusal(pod=pod, reason=each.waiting, is_final=False)
    return None


def _is_about(message: str, asked: frozenset[str], served: Collection[str]) -> bool:
    """Whether the message is about one of the served resources, by name or because no other plugin was asked."""
    ours = asked.intersection(served)
    if ours.intersection(_RESOURCE.findall(message)):
        return True
    of_plugins = {name for name in asked if "/" in name}
    return _PLUGIN_CALL in message and bool(ours) and of_plugins == ours
