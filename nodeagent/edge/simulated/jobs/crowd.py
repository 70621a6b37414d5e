"""The containers that hold parts of simulated GPUs, and what is wrong with them.

Refuses to know how parts are given: whoever plays the cluster says who has what.
"""

from dataclasses import dataclass, field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value

UNLIMITED_SHARE = 0.5
"""How much of a GPU a container uses that is held to no part of its compute."""


class PartWork(Value, frozen=True):
    """A container at work on its part of one GPU."""

    pod: str
    """`namespace/name`."""
    pod_uid: str
    container: str
    folder: str
    """By which its limits are called."""
    gpu: GpuUuid
    cores: int
    """Hundredths of the GPU's compute; 0 where it is held to none."""
    memory_mib: int

    @property
    def share(self) -> float:
        """Of the GPU's multiprocessors."""
        return self.cores / 100 or UNLIMITED_SHARE


@dataclass(slots=True)
class Crowd:
    """All of them, and how some of them misbehave."""

    works: tuple[PartWork, ...] = ()
    over_percent: dict[str, int] = field(default_factory=dict)
    """By pod, how much of its part of the memory it uses, whatever holds it."""
    without_library: set[str] = field(default_factory=set)
    """Pods in which the library never came up."""

    def find_pod(self, name: str) -> str:
        """The pod of this name, given with its namespace or without.

        Raises:
            ValueError: no such pod is at work, or several are.
        """
        pods = sorted({work.pod for work in self.works})
        found = [pod for pod in pods if name in {pod, pod.rpartition("/")[2]}]
        if len(found) != 1:
            known = ", ".join(found or pods) or "nobody yet; pods come to GPUs that have the door fractions"
            raise ValueError(f"{name!r} names no single pod with parts of GPUs; at work are: {known}")
        return found[0]

    def has_library(self, folder: str) -> bool:
        """Whether the library came up in the container whose limits are called so."""
        return any(work.folder == folder and work.pod not in self.without_library for work in self.works)
