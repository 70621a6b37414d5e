"""A GPU's partitions, whole: also what is half made and no device that anybody could be given."""

from nodeagent.model.gpu import MigProfile
from nodeagent.model.values import Value


class ComputeInstance(Value, frozen=True):
    """A part of the compute of one GPU instance; with it there is a MIG device."""

    id: int
    slices: int


class GpuInstance(Value, frozen=True):
    """A part of a GPU with memory of its own."""

    id: int
    profile_id: int
    start: int | None
    """In memory slots; `None` where the driver did not tell, which it does for the privileged only."""
    size: int
    computes: tuple[ComputeInstance, ...] = ()


class GpuPartitions(Value, frozen=True):
    """What one GPU is cut into, and could be."""

    enabled: bool
    pending: bool
    """The mode after the next reset."""
    instances: tuple[GpuInstance, ...] = ()
    profiles: tuple[MigProfile, ...] = ()
