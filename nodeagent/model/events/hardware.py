"""Events of GPUs and their driver."""

from typing import Final

from nodeagent.model.driver import DriverPhase
from nodeagent.model.health import Verdict
from nodeagent.model.ids import DeviceUuid, GpuUuid, PciAddress
from nodeagent.model.nvidia import EVENT_SOURCE
from nodeagent.model.repairs import Rung
from nodeagent.model.upgrades import UpgradePhase
from nodeagent.model.values import Value


class XidReported(Value, frozen=True):
    """The driver reported an XID error."""

    gpu: GpuUuid
    xid: int
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    source: str = EVENT_SOURCE
    """`nvml` or `kernel_log`."""
    message: str = ""


class GpuFaultReported(Value, frozen=True):
    """The driver reported a fault of a GPU or an NVSwitch; a fault that two sources report is one."""

    number: int
    """The XID, or the SXid of a switch."""
    name: str
    address: PciAddress
    """Of the GPU, or of the switch."""
    devices: tuple[DeviceUuid, ...]
    """The GPUs and MIG devices hit by the fault."""
    gpu: GpuUuid = GpuUuid("")
    """Empty for a fault of a switch."""
    index: int = -1
    """The GPU's index on the node."""
    is_fatal: bool = False
    """The driver's own word on a fault of a switch."""


GPU_RESET: Final = "gpu_reset"
"""The kind of report about a GPU that the agent has reset."""


class GpuEventReported(Value, frozen=True):
    """The driver reported something other than an XID, or its reports are received again."""

    gpu: GpuUuid
    kind: str
    """The driver's own word: `double_bit_ecc`, `single_bit_ecc_storm`, `dram_retirement`, `dram_retirement_failure`,
    `non_fatal_poison`, `fatal_poison`, `mig_layout`, `recovery_action`, `unavailable`; and `watch_resumed`, after which
    other events may have been missed. The agent itself reports `proof_failed`, and `gpu_reset` after a reset for a
    repair. The simulation also reports `gpu_lost`, `gpu_back` after a power cycle, `bind` and `unbind`."""
    data: int = 0
    """The event's data: of `recovery_action` the action, the driver's field 230."""


class GpuAppeared(Value, frozen=True):
    """A GPU is in the inventory, and was not before."""

    gpu: GpuUuid
    generation: int


class GpuVanished(Value, frozen=True):
    """A GPU is gone from the inventory, or no longer answers."""

    gpu: GpuUuid
    generation: int
    reason: str = ""
    is_gone: bool = False
    """Whether the GPU is no longer in its slot; a GPU that is there and does not answer is lost."""


class MigLayoutChanged(Value, frozen=True):
    """The MIG devices of a GPU are others than before."""

    gpu: GpuUuid
    generation: int


class DriverChanged(Value, frozen=True):
    """The driver's phase or version is another than before."""

    before: DriverPhase
    after: DriverPhase
    detail: str = ""


class GpuCleared(Value, frozen=True):
    """A person took a GPU back into service; the decision was stored first."""

    gpu: GpuUuid
    who: str
    reason: str
    cleared: tuple[str, ...] = ()


class GpuForgotten(Value, frozen=True):
    """A person confirmed that a vanished GPU is gone for good."""

    gpu: GpuUuid
    who: str


class VerdictChanged(Value, frozen=True):
    """A device's health verdict is another than before."""

    device: DeviceUuid
    before: Verdict
    after: Verdict
    reason: str = ""


class RepairStepped(Value, frozen=True):
    """A fault session was opened, climbed, or closed; the journal held the step first."""

    session: int
    gpus: tuple[GpuUuid, ...]
    rung: Rung
    step: str


class DriverUpgradeStepped(Value, frozen=True):
    """An upgrade of the driver began, entered a phase, or ended; the journal held the step first."""

    upgrade: int
    phase: UpgradePhase
    step: str


class FaultInjected(Value, frozen=True):
    """A person asked the simulation to misbehave."""

    fault: str
    target: str = ""
