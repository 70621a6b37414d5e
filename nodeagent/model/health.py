"""Verdicts about devices, and what they rest on."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Final

from nodeagent.model.ids import DeviceUuid, GpuUuid
from nodeagent.model.values import Value

NOT_LOOKED_AT: Final = "not looked at yet"
"""The reason of a verdict before the first look."""


class Verdict(StrEnum):
    """What a device is good for."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """Works and is handed out, but needs attention."""
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"
    """No evidence: nothing read yet, or nothing readable any more."""


class ReturnRule(StrEnum):
    """What must be seen before a device may be called healthy again."""

    NEVER_LEFT = "N"
    PROCESS_GONE = "P"
    LEVELS_CLEAN = "L"
    RESET = "R"
    POWER_CYCLE = "B"
    SERVICE = "S"
    QUIET_PERIOD = "W"


class FoundFault(Value, frozen=True):
    """One thing that is wrong with a device, by the name that rules go by."""

    key: str
    """`xid-79`, `remap-failed`, `hot`; `driver` where that does not work, `no-answer` where nothing is known."""
    verdict: Verdict


class DeviceHealth(Value, frozen=True):
    """One device's verdict; `reason` and `remedy` are sentences for the person who is paged."""

    device: DeviceUuid
    gpu: GpuUuid
    verdict: Verdict
    since_seconds: float
    reason: str = ""
    remedy: str = ""
    returns: str = ""
    """Whether and when it may be healthy again, in words; empty for one that is."""
    return_rule: ReturnRule = ReturnRule.NEVER_LEFT
    xid: int | None = None
    findings: tuple[FoundFault, ...] = ()
    """All that is wrong with it, the worst first."""


class HealthReport(Value, frozen=True, dict=True):
    """State: a verdict for every device of the inventory, always whole."""

    generation: int
    """Generation of the inventory it speaks of."""
    devices: tuple[DeviceHealth, ...] = ()
    watched: bool = True
    """Whether events and levels can be observed at all; if not, nothing here is silently healthy."""

    def find_device(self, uuid: str) -> DeviceHealth | None:
        """The verdict on this device, if there is one."""
        return self._by_uuid.get(uuid)

    @cached_property
    def _by_uuid(self) -> Mapping[str, DeviceHealth]:
        """Looked at once for each device of a list, so it is made once."""
        # From the end, so that of two with the same UUID the first is found.
        return {device.device: device for device in reversed(self.devices)}
