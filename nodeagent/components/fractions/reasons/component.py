"""Tells why containers have the GPUs that they have, why others wait, and how often a scheduler was not obeyed.

Owns the published `PartReasons` and the conditions `part-no-room` and `parts-without-cdi`.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.parts import PartReasons
from nodeagent.model.ports import PodListing
from nodeagent.model.runtime import RuntimeState
from nodeagent.rules.fractions.runtime import explain_no_cdi

_SOURCE = "fractions"


class Reasons:
    """A helper of the component `fractions`."""

    def __init__(self, bus: Bus, conditions: Conditions) -> None:
        self._bus, self._conditions = bus, conditions
        self._waiting: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._bound: dict[int, tuple[str, ...]] = {}
        self._overruled = Counter[str]()

    @property
    def anybody_waits(self) -> bool:
        """Whether a container waits for room."""
        return bool(self._waiting)

    def begin(self) -> None:
        """Who waited is not known any more: the kubelet asks again, and then it is said again."""
        self._conditions.replace("part-no-room", {})

    def tell_runtime(self) -> str:
        """Say why the container runtime cannot be told parts of GPUs, and return it; empty where it can."""
        runtime = self._bus.latest(RuntimeState)
        lack = explain_no_cdi(runtime.value if runtime is not None else None)
        self._conditions.replace("parts-without-cdi", {"": lack} if lack else {})
        return lack

    def note_bound(self, number: int, lines: Sequence[str], overruled: str = "") -> None:
        """A binding was made for these reasons; with the kind of reason for which a scheduler was not obeyed."""
        self._bound[number] = tuple(lines)
        if overruled:
            self._overruled[overruled] += 1

    def tell_bound(self, living: Collection[int]) -> None:
        """Say it of all that still are."""
        self._bound = {number: lines for number, lines in self._bound.items() if number in living}
        self._publish()

    def tell_waiting(self, who: str, reason: str, looked_at: tuple[str, ...] = ()) -> None:
        """Say of a container that it waits for room, or, without a reason, that it does so no more."""
        if self._waiting.get(who, ("",))[0] == reason:
            return
        if reason:
            self._waiting[who] = (reason, looked_at)
        else:
            del self._waiting[who]
        self._conditions.replace("part-no-room", {key: f"{key}: {text}" for key, (text, _) in self._waiting.items()})
        self._publish()

    def forget_waiting(self, listing: PodListing) -> None:
        """Say no more of a container that it waits when its pod has gone."""
        active = {f"{pod.namespace}/{pod.name}" for pod in listing.pods}
        for who in [who for who in self._waiting if who.partition(" ")[0] not in active]:
            self.tell_waiting(who, "")

    def _publish(self) -> None:
        waiting = {who: lines for who, (_, lines) in self._waiting.items()}
        reasons = PartReasons(bound=dict(self._bound), waiting=waiting, overruled=dict(self._overruled))
        self._bus.publish_state(reasons, source=_SOURCE)
