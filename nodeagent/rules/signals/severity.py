"""The severity of a fault for a pod with the device: whose fault it is, as far as the driver's number tells.

The lists are those of Flyte's reader of such events, which takes a lower severity from a writer and never a higher one.
"""

from enum import StrEnum
from typing import Final

from nodeagent.model.events import GpuFaultReported


class Severity(StrEnum):
    """What a fault says of a pod that fails with the fault."""

    CRITICAL = "critical"
    """Device or node failed, and the pod's program did not."""
    WARN = "warn"
    """The fault alone does not say why the pod failed."""
    USER = "user"
    """The pod's own program is the likely cause."""


USER_XIDS: Final = frozenset({13, 31, 43, 45})
CRITICAL_XIDS: Final = frozenset({48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 140})


def find_severity(fault: GpuFaultReported, holders: int) -> Severity:
    """The severity for each of so many pods with the device.

    The program of one pod is no fault of another: with several pods on the device nobody is named.
    """
    if not fault.gpu:
        return Severity.CRITICAL if fault.is_fatal else Severity.WARN
    if fault.number in CRITICAL_XIDS:
        return Severity.CRITICAL
    return Severity.USER if fault.number in USER_XIDS and holders == 1 else Severity.WARN
