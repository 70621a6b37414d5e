"""What containers use of the parts of GPUs that are theirs."""

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Enforcement
from nodeagent.model.units import render_bytes
from nodeagent.model.values import Value


class PartUse(Value, frozen=True):
    """One container's part of one GPU, and what it uses of that; `None` where that cannot be told."""

    gpu: GpuUuid
    index: int | None
    """The GPU's number; `None` for one that is gone."""
    cores: int
    """Hundredths of its compute that the container is promised."""
    memory_bytes: int
    """What it is promised of its memory."""
    cores_max: int | None = None
    """Hundredths that it may use while nobody else does, where that is more than its part."""
    cores_used: int | None = None
    """Hundredths of the time in which its processes ran on the GPU."""
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] = ()
    """Their numbers on the host."""

    def describe_cores(self) -> str:
        """Used and promised: `12 of 30`; a container without a part of its own may use any."""
        used = "-" if self.cores_used is None else str(self.cores_used)
        return f"{used} of {self.cores or 'any'}"

    def describe_memory(self) -> str:
        """Used and promised: `3.1 GiB of 8 GiB`."""
        used = "-" if self.memory_used_bytes is None else render_bytes(self.memory_used_bytes)
        return f"{used} of {render_bytes(self.memory_bytes)}"


class ContainerUse(Value, frozen=True):
    """One container and all of its parts."""

    number: int
    """Of its binding."""
    pod: PodIdentity
    container: str
    enforcement: Enforcement
    since_seconds: float
    why: str = ""
    """What decided for these GPUs."""
    parts: tuple[PartUse, ...] = ()


class UndividedUse(Value, frozen=True):
    """What several containers of one pod use of one GPU together: nothing tells yet which of them it is."""

    pod: PodIdentity
    containers: tuple[str, ...]
    gpu: GpuUuid
    index: int | None
    cores_used: int | None = None
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] = ()


class PartUsage(Value, frozen=True):
    """State: what each container with parts of GPUs uses of them, by the newest sample."""

    time_seconds: float = 0.0
    """Of that sample; 0 before there is one that is not old."""
    containers: tuple[ContainerUse, ...] = ()
    """In the order of their bindings."""
    undivided: tuple[UndividedUse, ...] = ()

    @property
    def named(self) -> "PartUsage":
        """Without pods of which the name is not known yet: two of them would be told of as one."""
        return PartUsage(
            time_seconds=self.time_seconds,
            containers=tuple(one for one in self.containers if one.pod.name),
            undivided=tuple(one for one in self.undivided if one.pod.name),
        )
