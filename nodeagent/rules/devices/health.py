"""Whether a device works: the findings against it, and the way back to healthy.

Owns the verdict. A device without findings is healthy at first sight; an unhealthy one is healthy again
only after as many clean checks in a row as a GPU would need.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nodeagent.config.sections.devices import DeviceClass, SysfsCheck
from nodeagent.model.devices import HostDevice, Standing
from nodeagent.model.values import Value

_CLEAN: Final = "; mended since, clean in "
_DECIMAL: Final = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


class Judged(Value, frozen=True):
    """The memory of a device between checks."""

    standing: Standing
    reason: str = ""
    clean_looks: int = 0
    """The number of clean checks in a row, since the device was last not healthy."""


def judge(
    before: Judged | None, findings: Sequence[str], *, is_there: bool, clean_looks: int, counts: bool = True
) -> Judged:
    """The verdict after another check, with a sentence for each finding against the device.

    `clean_looks` clean checks make a device healthy again; one that follows at once upon another does not count.
    """
    if not is_there:
        return Judged(standing=Standing.GONE, reason="its device node is not there")
    if findings:
        return Judged(standing=Standing.UNHEALTHY, reason="; ".join(findings))
    if before is None or before.standing is Standing.HEALTHY:
        return Judged(standing=Standing.HEALTHY)
    clean = before.clean_looks + counts
    if clean >= clean_looks:
        return Judged(standing=Standing.HEALTHY)
    was = before.reason.partition(_CLEAN)[0]
    return Judged(standing=Standing.UNHEALTHY, reason=f"{was}{_CLEAN}{clean} of {clean_looks} looks", clean_looks=clean)


def plan_files(device_class: DeviceClass, device: HostDevice) -> tuple[str, ...]:
    """The files of sysfs to check, below /sys; empty for a file that the device cannot have."""
    return tuple(_locate(check, device) for check in device_class.health.sysfs)


def _locate(check: SysfsCheck, device: HostDevice) -> str:
    if check.file.startswith("/sys/"):
        return check.file.removeprefix("/sys/")
    return f"{device.sysfs}/{check.file}" if device.sysfs else ""


def judge_files(device_class: DeviceClass, device: HostDevice, texts: Mapping[str, str]) -> tuple[str, ...]:
    """The findings of the files; an unreadable file is a finding, too."""
    found = []
    for check, path in zip(device_class.health.sysfs, plan_files(device_class, device), strict=True):
        if finding := _judge_file(check, path, texts.get(path, "")):
            found.append(finding)
    return tuple(found)


def _judge_file(check: SysfsCheck, path: str, text: str) -> str:
    if not path:
        return f"sysfs does not know it, so that {check.file} cannot be looked at"
    if not text:
        return f"/sys/{path} cannot be read, or says nothing"
    if check.equals is not None:
        return "" if text == check.equals else f"/sys/{path} says {text[:64]!r} instead of {check.equals!r}"
    assert check.below is not None
    if not _DECIMAL.fullmatch(text):
        return f"/sys/{path} says {text[:64]!r}, which is no number"
    return "" if float(text) < check.below else f"/sys/{path} says {text[:64]}, which is not below {check.below:g}"


def plan_command(device_class: DeviceClass, device: HostDevice) -> tuple[str, ...]:
    """The command for the device; empty where the class has none."""
    return tuple(word.replace("{node}", device.nodes[0]) for word in device_class.health.command)


def describe_gone(device: HostDevice, holders: Iterable[str]) -> str:
    """The message for a vanished device with holders."""
    return f"{device.name} is gone while {' and '.join(holders)} has it; it comes back by itself with its node"
