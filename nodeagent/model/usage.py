"""How containers use their fractions of GPUs."""

from typing import ClassVar

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement
from nodeagent.model.values import Value
from nodeagent.model.wording import render_bytes


class FractionUse(Value, frozen=True):
    """A container's fraction of a GPU, and its use; `None` where the use cannot be read."""

    gpu: GpuUuid
    index: int | None
    """The GPU's number; `None` for a GPU that is gone."""
    cores: int
    """Promised hundredths of the GPU's compute."""
    memory_bytes: int
    """Promised memory of the GPU."""
    cores_max: int | None = None
    """Usable hundredths while no other container uses the GPU, where more than promised."""
    cores_used: int | None = None
    """Hundredths of the time in which the container's processes ran on the GPU."""
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] = ()
    """Process ids on the host."""

    def describe_cores(self) -> str:
        """Used and promised: `12 of 30`; a container with no promised compute may use any."""
        used = "-" if self.cores_used is None else str(self.cores_used)
        return f"{used} of {self.cores or 'any'}"

    def describe_memory(self) -> str:
        """Used and promised: `3.1 GiB of 8 GiB`."""
        used = "-" if self.memory_used_bytes is None else render_bytes(self.memory_used_bytes)
        return f"{used} of {render_bytes(self.memory_bytes)}"


class ContainerUse(Value, frozen=True):
    """A container and all of its fractions."""

    number: int
    """Of the binding."""
    pod: PodIdentity
    container: str
    enforcement: Enforcement
    since_seconds: float
    why: str = ""
    """The reason for the choice of these GPUs."""
    parts: tuple[FractionUse, ...] = ()


class UndividedUse(Value, frozen=True):
    """Use of a GPU by several containers of a pod together, not yet attributed to a single container."""

    pod: PodIdentity
    containers: tuple[str, ...]
    gpu: GpuUuid
    index: int | None
    cores_used: int | None = None
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] = ()


class FractionUsage(Value, frozen=True):
    """State: the use of GPUs by each container with fractions, by the newest sample."""

    shown_as: ClassVar[str] = "PartUsage"

    time_seconds: float = 0.0
    """Of the sample; 0 before a current sample."""
    containers: tuple[ContainerUse, ...] = ()
    """In the order of bindings."""
    undivided: tuple[UndividedUse, ...] = ()

    @property
    def named(self) -> "FractionUsage":
        """Without pods whose name is not known yet: two such pods would be reported as a single pod."""
        return FractionUsage(
            time_seconds=self.time_seconds,
            containers=tuple(one for one in self.containers if one.pod.name),
            undivided=tuple(one for one in self.undivided if one.pod.name),
        )
