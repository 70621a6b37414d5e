"""The containers with fractions of simulated GPUs, and their faults.

Refuses to know how fractions are allocated: the simulation of the cluster sets the containers.
"""

from dataclasses import dataclass, field

from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value

UNLIMITED_SHARE = 0.5
"""Use of a GPU's compute by a container without a limit of compute."""


class FractionWork(Value, frozen=True):
    """A container at work on its fraction of one GPU."""

    pod: str
    """`namespace/name`."""
    pod_uid: str
    container: str
    folder: str
    """Name of the folder with the container's limits."""
    gpu: GpuUuid
    cores: int
    """Hundredths of the GPU's compute; 0 without a limit."""
    memory_mib: int

    @property
    def share(self) -> float:
        """The fraction of the GPU's multiprocessors."""
        return self.cores / 100 or UNLIMITED_SHARE


@dataclass(slots=True)
class SimulatedContainers:
    """All containers with fractions, and misbehaviour of some."""

    works: tuple[FractionWork, ...] = ()
    over_percent: dict[str, int] = field(default_factory=dict)
    """By pod, use of the fraction's memory in percent, despite all limits."""
    without_library: set[str] = field(default_factory=set)
    """Pods in which the library never came up."""

    def find_pod(self, name: str) -> str:
        """The pod of a name, given with its namespace or without.

        Raises:
            ValueError: No such pod is at work, or several are.
        """
        pods = sorted({work.pod for work in self.works})
        found = [pod for pod in pods if name in {pod, pod.rpartition("/")[2]}]
        if len(found) != 1:
            known = ", ".join(found or pods) or "nobody yet; pods come to GPUs that have the door fractions"
            raise ValueError(f"{name!r} names no single pod with parts of GPUs; at work are: {known}")
        return found[0]

    def has_library(self, folder: str) -> bool:
        """Whether the library came up in the container with this folder of limits."""
        return any(work.folder == folder and work.pod not in self.without_library for work in self.works)
