"""Verdicts about devices, and the evidence for them."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Final

from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.remedies import Remedy
from nodeagent.model.values import Value

NOT_LOOKED_AT: Final = "not looked at yet"
"""The reason of a verdict before the first look."""
DRIVER, NO_ANSWER = "driver", "no-answer"
"""Keys of what speaks against a device without a fault of the device: a driver that does not work, and no evidence."""


class Verdict(StrEnum):
    """A device's fitness for work."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Works and is handed out, but needs attention."""
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"
    """No evidence: before the first poll, or every reading failed."""


class ReturnRule(StrEnum):
    """The evidence required before a device may be called healthy again."""

    NEVER_LEFT = "N"
    PROCESS_GONE = "P"
    LEVELS_CLEAN = "L"
    RESET = "R"
    POWER_CYCLE = "B"
    SERVICE = "S"
    QUIET_PERIOD = "W"


class FoundFault(Value, frozen=True):
    """A fault of a device, by the name that rules use."""

    key: str
    """`xid-79`, `remap-failed`, `hot`; `DRIVER`, and `NO_ANSWER`."""
    verdict: Verdict
    rule: ReturnRule = ReturnRule.LEVELS_CLEAN
    """The evidence that ends the fault."""
    remedy: Remedy = Remedy.NOTHING
    seen_seconds: float = 0.0
    """The wall time of the newest report of the fault; of a level the time of its first poll."""
    is_present: bool = False
    """Whether the newest poll found the fault; never for a fault that only reports tell of."""


class DeviceHealth(Value, frozen=True):
    """A device's verdict; `reason` and `remedy` are sentences for the person on call."""

    device: DeviceUuid
    gpu: GpuUuid
    verdict: Verdict
    since_seconds: float
    reason: str = ""
    remedy: str = ""
    returns: str = ""
    """Whether and when the device may be healthy again, in words; empty for a healthy device."""
    return_rule: ReturnRule = ReturnRule.NEVER_LEFT
    xid: int | None = None
    findings: tuple[FoundFault, ...] = ()
    """All faults of the device, the worst first."""


class HealthReport(Value, frozen=True, dict=True):
    """State: a verdict for every device of the inventory, always whole."""

    generation: int
    """Generation of the inventory judged."""
    devices: tuple[DeviceHealth, ...] = ()
    watched: bool = True
    """Whether events and levels can be observed at all; if not, no device is silently healthy."""

    def find_device(self, uuid: str) -> DeviceHealth | None:
        """The verdict on a device, if there is any."""
        return self._by_uuid.get(uuid)

    @cached_property
    def _by_uuid(self) -> Mapping[str, DeviceHealth]:
        """Cached, as lists of devices look up each device."""
        # From the end, so that of two devices with the same UUID the first is found.
        return {device.device: device for device in reversed(self.devices)}
