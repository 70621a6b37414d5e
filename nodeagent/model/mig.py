"""A GPU's partitions, whole, and the calls that change them; half-made instances without a device are included."""

from enum import StrEnum
from typing import Final

from nodeagent.model.gpu import MigProfile
from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.values import Value

MEMORY: Final = "mig.json"
"""In the state directory: the layout requested last, and the clients paused for the change."""
IN_LINE: Final = "in line"
"""The activity of a GPU that is to change and has not been read yet."""
NEWEST: Final = -1
"""In place of an instance's id: the instance created just before."""


class ComputeInstance(Value, frozen=True):
    """A slice of a GPU instance's compute; each compute instance makes a MIG device."""

    id: int
    slices: int


class GpuInstance(Value, frozen=True):
    """A slice of a GPU with memory of its own."""

    id: int
    profile_id: int
    start: int | None
    """In memory slots; `None` where the driver did not report the slot, as for the unprivileged."""
    size: int
    computes: tuple[ComputeInstance, ...] = ()


class GpuPartitions(Value, frozen=True):
    """A GPU's partitions, present and possible."""

    enabled: bool
    pending: bool
    """The mode after the next reset."""
    instances: tuple[GpuInstance, ...] = ()
    profiles: tuple[MigProfile, ...] = ()
    """With placements only while MIG is on: the driver reports them no sooner."""
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
    """A single call that changes a GPU."""

    kind: WriteKind
    instance: int = NEWEST
    """The GPU instance to destroy, or the parent of the compute instance to create or destroy."""
    compute: int = 0
    profile_id: int = 0
    profile: str = ""
    """For people."""
    start: int = 0
    size: int = 0
    slices: int = 0

    def describe(self) -> str:
        """As a plan and the journal show the call."""
        place = "it" if self.instance == NEWEST else f"GPU instance {self.instance}"
        at = f" at slot {self.start}" if self.start >= 0 else ""
        return _WORDS[self.kind].format(
            place=place, at=at, compute=self.compute, profile=self.profile or "unnamed", slices=self.slices
        )


class PartitionRequest(Value, frozen=True):
    """A requested single MIG device, and its place on the GPU."""

    gpu: GpuUuid
    profile: str
    """The profile of the GPU instance, filled by the device: `1g.10gb`."""
    start: int
    """The first memory slot, among the profile's placements."""

    def describe(self) -> str:
        """For people: `1g.10gb at slot 2`."""
        return f"{self.profile} at slot {self.start}"


class GpuChange(Value, frozen=True):
    """A GPU whose partitions are being changed, or wait for the change."""

    gpu: GpuUuid
    index: int
    wanted: str
    """For people: `7 x 1g.10gb`."""
    doing: str
    """The present activity, or the reason for waiting."""
    keeps: tuple[DeviceUuid, ...] = ()
    """The GPU's devices that stay: all others of the GPU are given to no new pod."""
    done: int = 0
    """Calls made so far."""

    def describe(self) -> str:
        """For people: `GPU 3 becomes 7 x 1g.10gb: create GPU instance 1g.10gb at slot 2`."""
        return f"GPU {self.index} becomes {self.wanted}: {self.doing}"


class MigState(Value, frozen=True):
    """State: the requested layout, its standing, and the GPUs changing for it now."""

    layout: str = ""
    """Empty without a request."""
    origin: str = ""
    """The source of the request: the label, a person, the configuration."""
    standing: str = ""
    """As in the label `nvidia.com/mig.config.state`: `pending`, `rebooting`, `success`, `failed`."""
    detail: str = ""
    changes: tuple[GpuChange, ...] = ()

    def explain_hidden(self, gpu: GpuUuid, device: str) -> str:
        """Why no new pod gets a device of the GPU; empty while pods can."""
        for change in self.changes:
            if change.gpu == gpu and device not in change.keeps:
                return f"its GPU is being cut otherwise ({change.wanted}): {change.doing}"
        return ""
