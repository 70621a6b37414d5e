"""Who really holds what, kept apart from the agent and the kubelet, of which both may forget. Pure.

A pod holds its devices from the moment it was admitted until it is deleted, whatever anybody remembers of it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


class Violated(Exception):
    """Something that must hold does not; the text is for whoever reads the failing run."""


class Truth:
    """The devices of each living pod."""

    def __init__(self) -> None:
        self._held: dict[str, frozenset[str]] = {}

    @property
    def pods(self) -> tuple[str, ...]:
        """All living pods, oldest first."""
        return tuple(self._held)

    def held(self) -> Mapping[str, frozenset[str]]:
        return self._held

    def admit(self, pod: str, devices: Collection[str], size: int) -> None:
        """A pod runs from now on.

        Raises:
            Violated: it has what another has, or not what it asked for.
        """
        taken = frozenset(devices)
        if len(taken) != size:
            raise Violated(f"{pod} asked for {size} devices and runs with {sorted(taken)}")
        for other, theirs in self._held.items():
            if taken & theirs:
                raise Violated(f"{pod} was given {sorted(taken & theirs)}, which {other} has")
        self._held[pod] = taken

    def delete(self, pod: str) -> None:
        del self._held[pod]


def find_missing(truth: Truth, told: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Devices that a living pod holds and the agent's table does not know of: never right once it has recovered."""
    known = frozenset().union(*(frozenset(devices) for devices in told))
    return tuple(sorted(frozenset().union(*truth.held().values()) - known))


def find_doubled(told: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Devices that the agent's table has twice."""
    counts = Counter(device for devices in told for device in devices)
    return tuple(sorted(device for device, count in counts.items() if count > 1))


def find_left_over(truth: Truth, told: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Devices that the agent's table has and nobody holds: right for a while only."""
    known = frozenset().union(*(frozenset(devices) for devices in told))
    return tuple(sorted(known - frozenset().union(*truth.held().values())))
