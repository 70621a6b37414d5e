"""A GPU's partitions, whole, and the calls that change them: also what is half made and no device that anybody has."""

from enum import StrEnum
from typing import Final

from nodeagent.model.gpu import MigProfile
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.values import Value

MEMORY: Final = "mig.json"
"""In the state directory: the layout that was asked for last, and who is paused for it."""
IN_LINE: Final = "in line"
"""What a GPU does that is to change and has not been looked at yet."""
NEWEST: Final = -1
"""In the place of an instance's id: the one that was made just before."""


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
    """With places only while MIG is on: the driver tells them no sooner."""
    memory_bytes: int = 0
    """Of the whole GPU."""


class WriteKind(StrEnum):
    """The calls that change a GPU."""

    MODE_ON = "mode-on"
    MODE_OFF = "mode-off"
    RESET = "reset"
    DESTROY_COMPUTE = "destroy-compute"
    DESTROY = "destroy"
    CREATE = "create"
    CREATE_COMPUTE = "create-compute"


_WORDS: Final = {
    WriteKind.MODE_ON: "switch MIG on",
    WriteKind.MODE_OFF: "switch MIG off",
    WriteKind.RESET: "reset the GPU, so that its new mode counts",
    WriteKind.DESTROY_COMPUTE: "destroy compute instance {compute} of {place}",
    WriteKind.DESTROY: "destroy {place} ({profile}{at})",
    WriteKind.CREATE: "create GPU instance {profile}{at}",
    WriteKind.CREATE_COMPUTE: "create a compute instance of {slices} in {place}",
}


class Write(Value, frozen=True, omit_defaults=True):
    """One call that changes a GPU."""

    kind: WriteKind
    instance: int = NEWEST
    """The GPU instance that is destroyed, or in which something is made or destroyed."""
    compute: int = 0
    profile_id: int = 0
    profile: str = ""
    """For people."""
    start: int = 0
    size: int = 0
    slices: int = 0

    def describe(self) -> str:
        """As a plan and the journal show it."""
        place = "it" if self.instance == NEWEST else f"GPU instance {self.instance}"
        at = f" at slot {self.start}" if self.start >= 0 else ""
        return _WORDS[self.kind].format(
            place=place, at=at, compute=self.compute, profile=self.profile or "unnamed", slices=self.slices
        )


class PartitionWish(Value, frozen=True):
    """A single MIG device that somebody is to have, and its place on the GPU."""

    gpu: GpuUuid
    profile: str
    """Of its GPU instance, which it fills: `1g.10gb`."""
    start: int
    """The memory slot in which it begins, one of the profile's placements."""

    def describe(self) -> str:
        """As people read it: `1g.10gb at slot 2`."""
        return f"{self.profile} at slot {self.start}"


class GpuChange(Value, frozen=True):
    """A GPU that is being cut otherwise, or waits for it."""

    gpu: GpuUuid
    index: int
    wanted: str
    """As people read it: `7 x 1g.10gb`."""
    doing: str
    """What it does now, or waits for."""
    keeps: tuple[DeviceUuid, ...] = ()
    """Its devices that stay: all others of this GPU are given to nobody new."""
    done: int = 0
    """Calls made so far."""

    def describe(self) -> str:
        """As people read it: `GPU 3 becomes 7 x 1g.10gb: create GPU instance 1g.10gb at slot 2`."""
        return f"GPU {self.index} becomes {self.wanted}: {self.doing}"


class MigState(Value, frozen=True):
    """State: the layout that is asked for, how it stands, and which GPUs change for it now."""

    layout: str = ""
    """Empty where none is asked for."""
    origin: str = ""
    """Who asks: the label, a person, the configuration."""
    standing: str = ""
    """As the label `nvidia.com/mig.config.state` says it: `pending`, `rebooting`, `success`, `failed`."""
    detail: str = ""
    changes: tuple[GpuChange, ...] = ()

    def explain_hidden(self, gpu: GpuUuid, device: str) -> str:
        """Why nobody new gets a device of this GPU; empty where that is not so."""
        for change in self.changes:
            if change.gpu == gpu and device not in change.keeps:
                return f"its GPU is being cut otherwise ({change.wanted}): {change.doing}"
        return ""
