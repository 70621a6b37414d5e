"""Deals with users of devices that a change takes away: waits, evicts pods, or refuses the change.

Owns who was asked to go, and when to ask again. Refuses to take devices from processes without a pod.
"""

from collections.abc import Callable, Sequence
from typing import Final

from nodeagent.config.sections.mig import MigSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import Eviction
from nodeagent.model.errors import ControlRefused, NodeagentError
from nodeagent.model.gpu import Gpu
from nodeagent.model.ports import PodEviction
from nodeagent.model.values import Value
from nodeagent.rules.mig.affected import InTheWay, describe_in_the_way

AGAIN_SECONDS: Final = 5.0
"""Between two rounds of asking pods to go, which a disruption budget may have refused."""


class Clearing(Value, frozen=True):
    """The standing of the users in the way."""

    detail: str
    doing: str
    again_seconds: float | None = None
    """Seconds until a new check without news; `None` to wait for news."""


class Clearer:
    """Carries out the setting `mig.when_busy`."""

    def __init__(self, read_settings: Callable[[], MigSettings], eviction: PodEviction | None) -> None:
        """`eviction` asks pods to go; `None` without an API server."""
        self._read_settings, self._eviction = read_settings, eviction

    async def clear(self, gpu: Gpu, found: Sequence[InTheWay], waited_seconds: float) -> Clearing:
        """Deal with the users now.

        Raises:
            ControlRefused: The change is not to be made.
        """
        settings, names = self._read_settings(), describe_in_the_way(found)
        if settings.when_busy == "refuse":
            raise ControlRefused(f"GPU {gpu.index} is used by {names}, and mig.when_busy is refuse")
        if settings.when_busy == "wait":
            return Clearing(detail=names, doing=f"waits for {names}")
        if self._eviction is None:
            detail = f"{names}; mig.when_busy is evict, but there is no API server that could evict them"
            return Clearing(detail=detail, doing=f"waits for {names}")
        if waited_seconds >= settings.evict_timeout_seconds:
            raise ControlRefused(
                f"GPU {gpu.index} is still used by {names} after {settings.evict_timeout_seconds:g} s: raise"
                " mig.evict_timeout_seconds, or mend what keeps them"
            )
        pods = {one.pod.uid: one.pod for one in found if one.pod is not None and one.pod.uid}
        told = [said for pod in pods.values() if (said := await _ask(self._eviction, pod))]
        detail = "; ".join([names, *told])
        return Clearing(detail=detail, doing=f"evicts {detail}", again_seconds=AGAIN_SECONDS)


async def _ask(eviction: PodEviction, pod: PodIdentity) -> str:
    """Ask one pod to go; returns the obstacle, if any."""
    name = f"{pod.namespace}/{pod.name}"
    try:
        answer = await eviction.evict_pod(pod)
    except NodeagentError as error:
        return str(error)
    return f"the disruption budget of {name} allows no eviction now" if answer is Eviction.BLOCKED else ""
