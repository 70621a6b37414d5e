"""The health of devices, as reported to the kubelet; pure."""

from collections.abc import Iterable

from nodeagent.model.claims import DeviceHealth
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.rules.claims.naming import NamedDevice

_GOOD = {Verdict.HEALTHY: True, Verdict.SUSPECT: True, Verdict.UNHEALTHY: False, Verdict.UNKNOWN: None}
MESSAGE_MAX = 1024
"""Characters that the kubelet keeps."""


def plan_health(devices: Iterable[NamedDevice], report: HealthReport | None, pool: str) -> tuple[DeviceHealth, ...]:
    """A line for each device; a MIG device still to be made has its GPU's health."""
    return tuple(_judge(device, report, pool) for device in devices)


def _judge(device: NamedDevice, report: HealthReport | None, pool: str) -> DeviceHealth:
    if device.gpu.lost:
        return DeviceHealth(pool=pool, device=device.name, is_healthy=False, message=device.gpu.lost[:MESSAGE_MAX])
    found = None
    if report is not None:
        own = report.find_device(device.mig.uuid) if device.mig is not None else None
        found = own or report.find_device(device.gpu.uuid)
    if found is None:
        return DeviceHealth(pool=pool, device=device.name, is_healthy=None, message="not looked at yet")
    return DeviceHealth(
        pool=pool,
        device=device.name,
        is_healthy=_GOOD[found.verdict],
        message=found.reason[:MESSAGE_MAX] if found.verdict is not Verdict.HEALTHY else "",
    )
