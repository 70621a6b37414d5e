"""The conditions of a health report, by code and device."""

from typing import Final

from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.rules.ids import name_device

CODES: Final = {
    Verdict.UNHEALTHY: "gpu-unhealthy",
    Verdict.SUSPECT: "gpu-suspect",
    Verdict.UNKNOWN: "gpu-health-unknown",
}


def decide_problems(
    report: HealthReport, inventory: Inventory, covered: frozenset[str] = frozenset()
) -> dict[str, dict[str, str]]:
    """For each code the details by device; a MIG device is named only where its GPU is not named for the same.

    GPUs in `covered` are unfit because of the driver, and the driver has a condition for all of them.
    """
    problems: dict[str, dict[str, str]] = {code: {} for code in CODES.values()}
    wholes = {device.device: device for device in report.devices if device.device == device.gpu}
    for device in report.devices:
        code = CODES.get(device.verdict)
        whole = wholes.get(device.gpu)
        is_duplicate = whole is not None and device is not whole and device.verdict is whole.verdict
        if code is not None and not is_duplicate and device.gpu not in covered:
            problems[code][device.device] = _describe(device, inventory)
    return problems


def _describe(device: DeviceHealth, inventory: Inventory) -> str:
    gpu = inventory.find_gpu(device.device)
    name = str(device.device)
    if gpu is not None:
        mig = next((one for one in gpu.mig_devices if one.uuid == device.device), None)
        name = name_device(gpu, mig)
    parts = [f"{name}: {device.reason}", device.remedy, f"returns {device.returns}" if device.returns else ""]
    return "; ".join(part for part in parts if part)
