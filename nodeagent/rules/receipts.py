"""Receipts of pods that have ended: the GPUs that a container held, the faults meanwhile, and whom the faults blame.

Owns the counting of a fault that repeats, and the verdict.
Refuses to know why a pod ended: a receipt says what happened to the GPUs, and the times say the rest.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from nodeagent.model.allocation import AllocationRow
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.ids import GpuUuid, PciAddress
from nodeagent.model.values import Value
from nodeagent.model.wording import render_age
from nodeagent.rules.signals import Severity

FAULTS_MAX: Final = 16
"""Different faults in a receipt: the first ones name the cause, and what follows is its consequence."""


class Verdict(StrEnum):
    """Whom the faults of a receipt blame."""

    HARDWARE = "hardware"
    """A GPU or the node failed."""
    APPLICATION = "application"
    """The pod's own program is the likely cause of a fault."""
    NONE = "none"
    """No fault was seen, or none whose number blames anybody."""


class SeenFault(Value, frozen=True):
    """A fault of a GPU or an NVSwitch while a container held the GPU, with the number of times."""

    number: int
    """The XID, or the SXid of a switch."""
    name: str
    severity: Severity
    gpu: GpuUuid
    """Empty for a fault of a switch."""
    index: int
    """The GPU's index on the node."""
    address: PciAddress
    """Of the GPU, or of the switch."""
    first_seconds: float
    last_seconds: float
    count: int = 1

    def is_again(self, other: "SeenFault") -> bool:
        """Whether another fault is of the same kind on the same GPU or switch."""
        return (self.number, self.address, self.severity) == (other.number, other.address, other.severity)


def see_fault(fault: GpuFaultReported, severity: Severity, at_seconds: float) -> SeenFault:
    """The fault as a receipt has it."""
    return SeenFault(
        number=fault.number,
        name=fault.name,
        severity=severity,
        gpu=fault.gpu,
        index=fault.index,
        address=fault.address,
        first_seconds=at_seconds,
        last_seconds=at_seconds,
    )


def add_fault(seen: Sequence[SeenFault], new: SeenFault) -> tuple[SeenFault, ...]:
    """The faults with a new one: a repetition is counted, and beyond `FAULTS_MAX` kinds nothing changes."""
    if any(new.is_again(each) for each in seen):
        return tuple(_count(each, new.last_seconds) if new.is_again(each) else each for each in seen)
    return (*seen, new)[:FAULTS_MAX]


def _count(fault: SeenFault, at_seconds: float) -> SeenFault:
    return replace(fault, count=fault.count + 1, last_seconds=max(fault.last_seconds, at_seconds))


def describe_fault(fault: SeenFault, until_seconds: float | None) -> str:
    """The fault with its distance from the end: what came long before rarely ended the pod."""
    number = f"{'XID' if fault.gpu else 'SXID'} {fault.number}" + (f" x{fault.count}" if fault.count > 1 else "")
    before = (until_seconds or fault.last_seconds) - fault.last_seconds
    return f"{number} {render_age(before)} before" if before >= 1 else f"{number} at the end"


def find_verdict(faults: Iterable[SeenFault]) -> Verdict:
    """Whom the faults blame: one fault of the hardware excuses the program, whose faults may follow from the other."""
    severities = {each.severity for each in faults}
    if Severity.CRITICAL in severities:
        return Verdict.HARDWARE
    return Verdict.APPLICATION if Severity.USER in severities else Verdict.NONE


class HeldGpu(Value, frozen=True):
    """A GPU that a container held, whole or a part of it."""

    uuid: str
    """Of the GPU; of the MIG device itself where the node has the device no more."""
    index: int | None
    """The GPU's index on the node; `None` where the node has the GPU no more."""


class Receipt(AllocationRow, frozen=True):
    """An allocation that has ended, with the faults seen until then."""

    pod_uid: str
    """Empty while the kubelet has not told."""
    gpus: tuple[HeldGpu, ...]
    verdict: Verdict
    faults: tuple[SeenFault, ...]
