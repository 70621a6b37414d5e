"""Sensors in a tree made like sysfs.

Files of hwmon are those of the kernel's Documentation/hwmon/sysfs-interface.rst; those of use, memory and errors are
of the amdgpu driver, Documentation/gpu/amdgpu; the state of sleep is Documentation/ABI/testing/sysfs-devices-power.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.device_sensors import DeviceSensors, read_sensors
from nodeagent.edge.host.errors import HostStuck
from tests.support.waiting import hanging

GPU, OTHER = "bus/pci/devices/0000:03:00.0", "bus/pci/devices/0000:23:00.0"
FILES = {
    "hwmon/hwmon3/temp1_input": "61000",
    "hwmon/hwmon3/temp1_crit": "100000",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/power1_average": "300000000",
    "hwmon/hwmon3/energy1_input": "5",
    "gpu_busy_percent": "50",
    "mem_info_vram_used": "1",
    "mem_info_vram_total": "2",
    "ras/umc_err_count": "ue: 0\nce: 1",
    "ras/aca_gfx": "ue: 0\nce: 0",
}


def plant(sys: Path, place: str = GPU, **others: str) -> Path:
    for name, text in {**FILES, **others}.items():
        (sys / place / name).parent.mkdir(parents=True, exist_ok=True)
        (sys / place / name).write_text(f"{text}\n")
    return sys / place


def test_the_files_of_sensors_are_read_and_no_others(tmp_path: Path) -> None:
    others = {"hwmon/hwmon3/name": "amdgpu", "hwmon/hwmon3/fan1_input": "9", "ras/features": "x", "vendor": "0x1002"}
    assert read_sensors(plant(tmp_path, **others)) == FILES
    assert read_sensors(tmp_path / "none") == {}


def test_a_file_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    place = plant(tmp_path)
    (place / "hwmon/hwmon3/temp1_input").unlink()
    (place / "hwmon/hwmon3/temp1_input").mkdir()
    assert read_sensors(place) == {**FILES, "hwmon/hwmon3/temp1_input": ""}


def test_a_device_asleep_is_not_asked(tmp_path: Path) -> None:
    assert read_sensors(plant(tmp_path, **{"power/runtime_status": "suspended"})) == {}
    assert read_sensors(plant(tmp_path, **{"power/runtime_status": "active"})) == FILES


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    own = WorkerThread("sensors")
    yield own
    own.close()


async def test_a_device_that_hangs_holds_up_no_other_and_is_not_asked_again(
    tmp_path: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the call has ended."""
    plant(tmp_path, OTHER)
    sensors = DeviceSensors(tmp_path, worker)
    with hanging() as hang, monkeypatch.context() as patch:
        patch.setattr("nodeagent.edge.host.devices.device_sensors.READ_SECONDS", 0.02)
        patch.setattr("nodeagent.edge.host.devices.device_sensors.read_sensors", hang)
        with pytest.raises(HostStuck, match=f"reading sensors in /sys/{GPU}"):
            await sensors.read(GPU)
        patch.undo()
        assert await sensors.read(OTHER) == FILES
        with pytest.raises(HostStuck, match="has not ended"):
            await sensors.read(GPU)
        assert len(worker.stuck()) == 1
