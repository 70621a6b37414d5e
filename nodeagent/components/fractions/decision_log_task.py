"""Publishes why containers have their GPUs, why others wait, and how often a scheduler was not obeyed.

Owns the published `FractionDecisions` and the conditions `part-no-room` and `parts-without-cdi`.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.fractions import FractionDecisions
from nodeagent.model.ports import PodListing
from nodeagent.model.runtime import RuntimeState
from nodeagent.rules.fractions.runtime import explain_no_cdi, explain_no_device_names

_SOURCE = "fractions"


class DecisionLog:
    """The decision log; a helper of the component `fractions`."""

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
        """Forget the waiting containers of the last run: the kubelet asks again for each."""
        self._conditions.replace("part-no-room", {})

    def report_runtime(self, *, has_classes: bool) -> tuple[str, str]:
        """Set or clear the condition of a runtime unfit for fractions.

        Returns the reasons against fractions of the driver's GPUs and of classes' devices, empty for a fit runtime.
        """
        runtime = self._bus.read(RuntimeState)
        lack, of_classes = explain_no_cdi(runtime), explain_no_device_names(runtime) if has_classes else ""
        self._conditions.replace("parts-without-cdi", {"": lack or of_classes} if lack or of_classes else {})
        return lack, of_classes

    def note_bound(self, number: int, lines: Sequence[str], overruled: str = "") -> None:
        """Note the reasons of a binding, and in a word why a scheduler was not obeyed."""
        self._bound[number] = tuple(lines)
        if overruled:
            self._overruled[overruled] += 1

    def publish_bound(self, living: Collection[int]) -> None:
        """Publish the reasons of the living bindings."""
        self._bound = {number: lines for number, lines in self._bound.items() if number in living}
        self._publish()

    def report_waiting(self, who: str, reason: str, looked_at: tuple[str, ...] = ()) -> None:
        """Report a container as waiting for room or, with an empty reason, as waiting no more."""
        if self._waiting.get(who, ("",))[0] == reason:
            return
        if reason:
            self._waiting[who] = (reason, looked_at)
        else:
            del self._waiting[who]
        self._conditions.replace("part-no-room", {key: f"{key}: {text}" for key, (text, _) in self._waiting.items()})
        self._publish()

    def forget_waiting(self, listing: PodListing) -> None:
        """Remove waiting containers of gone pods."""
        active = {f"{pod.namespace}/{pod.name}" for pod in listing.pods}
        for who in [who for who in self._waiting if who.partition(" ")[0] not in active]:
            self.report_waiting(who, "")

    def _publish(self) -> None:
        waiting = {who: lines for who, (_, lines) in self._waiting.items()}
        reasons = FractionDecisions(bound=dict(self._bound), waiting=waiting, overruled=dict(self._overruled))
        self._bus.publish_state(reasons, source=_SOURCE)
