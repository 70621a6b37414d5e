"""Sensors of a device: the kernel's files with its temperatures, power, use, memory and errors.

Owns which files there are. Each device is read in a call of its own with a deadline: one whose driver hangs holds up
no other, and is not read again before the call has ended.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import HostStuck
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute
from nodeagent.edge.host.host_worker import HostWorker

READ_SECONDS: Final = 2.0
"""Deadline for one device; a device that works takes milliseconds."""
STUCK_LIMIT: Final = 32
"""How many devices may hang at the same time."""
_SENSOR: Final = re.compile(r"(temp[0-9]+_(input|crit|label)|power[0-9]+_(input|average)|energy[0-9]+_input)")
_FILES: Final = ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total")
_ERRORS: Final = re.compile(r".+_err_count|aca_.+")


class DeviceSensors:
    """Reads the sensors of one device after the other; bounded in time."""

    def __init__(self, sys_root: Path, worker: WorkerThread) -> None:
        self._sys_root, self._worker = sys_root, worker

    async def read(self, place: str) -> Mapping[str, str]:
        """The texts of the sensors in a directory below /sys, by file; empty for an unreadable file.

        Raises:
            HostStuck: The driver does not answer.
        """
        what = f"reading sensors in /sys/{place}"
        path = self._sys_root / place
        if what in self._worker.stuck():
            raise HostStuck(path, f"{what} has not ended")
        return await HostWorker(self._worker, path, READ_SECONDS).run(lambda: read_sensors(path), what)


def read_sensors(place: Path) -> dict[str, str]:
    """The texts of all sensors, in the calling thread; none of a device asleep, which a question would wake."""
    if read_attribute(place / "power/runtime_status") == "suspended":
        return {}
    chips = [f"hwmon/{chip}" for chip in list_names(place / "hwmon")]
    names = [f"{chip}/{name}" for chip in chips for name in list_names(place / chip) if _SENSOR.fullmatch(name)]
    names += [name for name in _FILES if (place / name).exists()]
    names += [f"ras/{name}" for name in list_names(place / "ras") if _ERRORS.fullmatch(name)]
    return {name: read_attribute(place / name) for name in names}
