"""The action for each reservation and binding once the kubelet, the runtime and the GPUs have been asked about it.

Owns the table of recovery, at a start and at each periodic check.

Refuses to release on one source's word, or where a source could not be read: unreadable is not empty; or after a single
check, unless the pod is reported to have finished for good.
"""

from enum import StrEnum
from typing import Final

from nodeagent.model.values import Value

BETWEEN_POLLS_SECONDS: Final = 10.0
"""The time between two checks from which on the second counts as another."""


class Kubelet(StrEnum):
    """Whether the kubelet holds the ids, by checkpoint or list of pods."""

    YES = "yes"
    NO = "no"
    UNREADABLE = "unreadable"


class Process(StrEnum):
    """Whether the pod of a binding uses the GPU."""

    NONE = "none"
    CONTAINER = "container"
    UNKNOWN = "unknown"
    """The driver does not answer."""


class Container(StrEnum):
    """Whether the runtime has the container of a binding."""

    ABSENT = "absent"
    PRESENT = "present"
    UNREADABLE = "unreadable"


class Action(StrEnum):
    """The action to take."""

    KEEP = "keep"
    POLL_RETRY = "look_again"
    """The fraction seems to be over; a single check does not decide."""
    RELEASE = "release"
    """The fraction, or the reserved ids, are free again."""
    ORPHAN = "orphan"
    """Keep the fraction without the kubelet's word, until the process or the container is gone."""


class Evidence(Value, frozen=True):
    """The words of all sources about one reservation or binding, in one check."""

    kubelet: Kubelet
    is_bound: bool = True
    """False for a reservation: no container has the ids yet, so the kubelet is the only source."""
    process: Process = Process.NONE
    container: Container = Container.ABSENT
    is_finished: bool = False
    """Whether the API server says that no container of the pod will run any more."""
    over_since_seconds: float | None = None
    """Since when every check has found the fraction over; `None` where the last check did not."""
    now_seconds: float = 0.0
    """By the same clock, a monotonic one."""


class Finding(Value, frozen=True):
    """The action for a fraction, and the reason."""

    action: Action
    reason: str


def decide_recovery(evidence: Evidence) -> Finding:
    """One row of the table."""
    if evidence.kubelet is Kubelet.UNREADABLE:
        return Finding(action=Action.KEEP, reason="the kubelet's records cannot be read")
    if evidence.kubelet is Kubelet.YES:
        return Finding(action=Action.KEEP, reason="the kubelet holds it")
    return _decide_forgotten(evidence) if evidence.is_bound else _decide_over(evidence, "the answer never arrived")


def _decide_forgotten(evidence: Evidence) -> Finding:
    """The journal knows of the binding, the kubelet does not."""
    if evidence.process is Process.UNKNOWN:
        return Finding(action=Action.KEEP, reason="the kubelet has let it go, the driver cannot be asked")
    if evidence.process is Process.CONTAINER:
        return Finding(action=Action.ORPHAN, reason="the kubelet has let it go, a process still uses the GPU")
    if evidence.container is Container.UNREADABLE:
        return Finding(action=Action.KEEP, reason="the kubelet has let it go, the container runtime cannot be asked")
    if evidence.container is Container.PRESENT:
        return Finding(action=Action.ORPHAN, reason="the kubelet has let it go, its container is still there")
    return _decide_over(evidence, "kubelet, processes and containers agree that it is over")


def _decide_over(evidence: Evidence, reason: str) -> Finding:
    """A fraction is over when a later check agrees, or when its pod can never run again."""
    if evidence.is_finished:
        # Schedulers count the fraction as free from now on.
        return Finding(action=Action.RELEASE, reason="its pod has finished, as all others agree")
    since = evidence.over_since_seconds
    if since is None or evidence.now_seconds - since < BETWEEN_POLLS_SECONDS:
        return Finding(action=Action.POLL_RETRY, reason=reason)
    return Finding(action=Action.RELEASE, reason=reason)
