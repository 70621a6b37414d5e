"""The action for each fraction once journal, kubelet and GPUs have been asked about it.

Owns the table of recovery, at a start and at each periodic check.

Refuses to release on one source's word, or where a source could not be read: unreadable is not empty; or after a single
check, unless the pod is reported to have finished for good.
Ids held by the kubelet are adopted, whatever the other sources say.
"""

from enum import StrEnum
from typing import Final

from nodeagent.model.values import Value

BETWEEN_POLLS_SECONDS: Final = 10.0
"""The time between two checks from which on the second counts as another."""


class Own(StrEnum):
    """The journal's word."""

    NONE = "none"
    RESERVED = "reserved"
    """The ids are given out, the GPU is not chosen yet."""
    BOUND = "bound"


class Kubelet(StrEnum):
    """Whether the kubelet holds the ids, by checkpoint or list of pods."""

    YES = "yes"
    NO = "no"
    UNREADABLE = "unreadable"


class Process(StrEnum):
    """The user of the GPU on the fraction's account."""

    NONE = "none"
    CONTAINER = "container"
    HOST = "host"
    UNKNOWN = "unknown"
    """The driver does not answer."""


class Container(StrEnum):
    """Whether the runtime has the container."""

    ABSENT = "absent"
    PRESENT = "present"
    UNREADABLE = "unreadable"


class Action(StrEnum):
    """The action to take."""

    NOTHING = "nothing"
    """There is no fraction."""
    KEEP = "keep"
    """Keep the fraction, and verify its files, written again if missing."""
    POLL_RETRY = "look_again"
    """The fraction seems to be over; a single check does not decide."""
    ROLL_BACK = "roll_back"
    """The reservation is taken back."""
    RELEASE = "release"
    """The fraction is free again."""
    ORPHAN = "orphan"
    """Keep the fraction without the kubelet's word, until the process or the container is gone."""
    ADOPT = "adopt"
    """Make a binding from the other sources."""
    ACCOUNT = "account"
    """Subtract the process's memory; no pod gets the GPU alone."""
    IGNORE = "ignore"
    """The process is on the list of allowed users of GPUs outside of pods."""
    FREEZE = "freeze"
    """Release and adopt nothing; starts are served from the journal."""


class Evidence(Value, frozen=True):
    """The words of all sources about one fraction, in one check."""

    own: Own
    kubelet: Kubelet
    process: Process = Process.NONE
    container: Container = Container.ABSENT
    is_finished: bool = False
    """Whether the API server says that no container of the pod will run any more."""
    is_ignored: bool = False
    """Whether the process is on the list of allowed processes."""
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
        return Finding(action=Action.FREEZE, reason="the kubelet's records cannot be read")
    if evidence.kubelet is Kubelet.YES:
        return _decide_held(evidence)
    if evidence.own is Own.NONE:
        return _decide_foreign(evidence)
    return _decide_forgotten(evidence)


def _decide_held(evidence: Evidence) -> Finding:
    """The kubelet holds the ids."""
    if evidence.own is Own.BOUND:
        return Finding(action=Action.KEEP, reason="journal and kubelet agree")
    if evidence.own is Own.NONE:
        return Finding(action=Action.ADOPT, reason="the kubelet holds it, the journal does not know of it")
    if evidence.process in {Process.CONTAINER, Process.HOST}:
        return Finding(action=Action.ADOPT, reason="its container runs, the journal has lost on which GPU")
    return Finding(action=Action.KEEP, reason="its container has not started yet, the GPU is chosen then")


def _decide_foreign(evidence: Evidence) -> Finding:
    """Neither the journal nor the kubelet knows of the fraction."""
    if evidence.process in {Process.NONE, Process.UNKNOWN}:
        return Finding(action=Action.NOTHING, reason="nobody knows of it")
    if evidence.process is Process.CONTAINER:
        return Finding(action=Action.ACCOUNT, reason="a container uses the GPU that was not given it here")
    if evidence.is_ignored:
        return Finding(action=Action.IGNORE, reason="a process of the host that may use GPUs")
    return Finding(action=Action.ACCOUNT, reason="a process of the host uses the GPU")


def _decide_forgotten(evidence: Evidence) -> Finding:
    """The journal knows of the fraction, the kubelet does not."""
    if evidence.process is Process.UNKNOWN:
        return Finding(action=Action.KEEP, reason="the kubelet has let it go, the driver cannot be asked")
    if evidence.process is not Process.NONE:
        return Finding(action=Action.ORPHAN, reason="the kubelet has let it go, a process still uses the GPU")
    if evidence.own is Own.RESERVED:
        return _decide_over(evidence, Action.ROLL_BACK, "the answer never arrived")
    if evidence.container is Container.UNREADABLE:
        return Finding(action=Action.KEEP, reason="the kubelet has let it go, the container runtime cannot be asked")
    if evidence.container is Container.PRESENT:
        return Finding(action=Action.ORPHAN, reason="the kubelet has let it go, its container is still there")
    return _decide_over(evidence, Action.RELEASE, "kubelet, processes and containers agree that it is over")


def _decide_over(evidence: Evidence, action: Action, reason: str) -> Finding:
    """A fraction is over when a later check agrees, or when its pod can never run again."""
    if evidence.is_finished:
        # Schedulers count the fraction as free from now on.
        return Finding(action=action, reason="its pod has finished, as all others agree")
    since = evidence.over_since_seconds
    if since is None or evidence.now_seconds - since < BETWEEN_POLLS_SECONDS:
        return Finding(action=Action.POLL_RETRY, reason=reason)
    return Finding(action=action, reason=reason)
