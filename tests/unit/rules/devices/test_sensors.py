"""Readings from the kernel's files, and what they say against a device.

Units are those of the kernel's Documentation/hwmon/sysfs-interface.rst, forms those of the amdgpu driver.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.devices import BlockErrors, DeviceReadings, HostDevice, PciPlace, Temperature, UsbPlace
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.rules.devices.group import plan_classes
from nodeagent.rules.devices.sensors import Sensed, judge_sensors, plan_sensors, read_values
from tests.support.devices import make_class, make_host, make_node

PLACE = "bus/pci/devices/0000:03:00.0"
DEVICE = HostDevice(id=DeviceId("DEV-x"), name="/dev/x", nodes=("/dev/x",), sensors=PLACE)
TEXTS = {
    "hwmon/hwmon3/temp1_input": "61500",
    "hwmon/hwmon3/temp1_crit": "100000",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/temp2_input": "-5000",
    "hwmon/hwmon3/temp2_crit": "0",
    "hwmon/hwmon4/temp1_input": "40000",
    "hwmon/hwmon4/temp1_label": "edge",
    "hwmon/hwmon3/temp9_input": "",
    "hwmon/hwmon3/power1_average": "",
    "hwmon/hwmon3/power1_input": "300000000",
    "hwmon/hwmon3/energy1_input": "2500000",
    "gpu_busy_percent": "50",
    "mem_info_vram_used": "1024",
    "mem_info_vram_total": "4096",
    "ras/umc_err_count": "ue: 3\nce: 4",
    "ras/aca_gfx": "ue: 0\nce: 1\nde: 9",
    "ras/odd_err_count": "",
}
HEAT = (
    Temperature(sensor="edge", celsius=61.5, critical_celsius=100.0),
    Temperature(sensor="temp2", celsius=-5.0),
    Temperature(sensor="hwmon4/temp1", celsius=40.0),
)


def test_readings_have_units_of_people() -> None:
    """Two sensors of one label have each a name of its own; what no file says is unknown."""
    assert read_values(DEVICE, Sensed(TEXTS)) == DeviceReadings(
        temperatures=HEAT,
        power_watts=pytest.approx(300.0),  # type: ignore[arg-type]  # compares as a number
        energy_joules=pytest.approx(2.5),  # type: ignore[arg-type]  # likewise
        utilization_ratio=0.5,
        memory_used_bytes=1024,
        memory_bytes=4096,
        errors=(
            BlockErrors(block="umc", uncorrected=3, corrected=4),
            BlockErrors(block="gfx", uncorrected=0, corrected=1),
        ),
    )
    assert read_values(DEVICE, Sensed({"hwmon/hwmon3/power1_average": ""})) == DeviceReadings()
    assert read_values(DEVICE, None) is None
    assert read_values(DEVICE, Sensed(failure="hangs")) is None


def test_a_partition_has_the_temperatures_of_its_gpu_alone() -> None:
    """A sum over all partitions would count the rest as often as there are partitions."""
    part = replace(DEVICE, is_partition=True)
    assert read_values(part, Sensed(TEXTS)) == DeviceReadings(temperatures=HEAT)


@pytest.mark.parametrize(
    ("texts", "finding"),
    [
        ({}, ""),
        (TEXTS, ""),
        (
            {**TEXTS, "hwmon/hwmon3/temp1_input": "100000"},
            "sensor edge is at 100 °C, and 100 °C is critical",
        ),
        (
            {"hwmon/hwmon3/temp1_input": "", "hwmon/hwmon3/temp1_crit": "100000"},
            f"/sys/{PLACE}/hwmon/hwmon3/temp1_input cannot be read, or says no temperature",
        ),
        ({"gpu_busy_percent": ""}, ""),
    ],
)
def test_heat_and_sensors_that_are_not_to_be_read_speak_against_a_device(texts: dict[str, str], finding: str) -> None:
    """One sensor of several may be without a reading."""
    known = tuple(filter(None, [finding]))
    assert judge_sensors(make_class(nodes=["/dev/x"]), DEVICE, Sensed(texts)) == known
    careless = make_class(nodes=["/dev/x"], health={"sensors": False})
    assert judge_sensors(careless, DEVICE, Sensed(texts)) == ()


def test_a_driver_that_gives_no_answer_speaks_against_its_device() -> None:
    one = make_class(nodes=["/dev/x"])
    assert judge_sensors(one, DEVICE, Sensed(failure="hangs")) == ("its sensors give no answer: hangs",)
    assert judge_sensors(one, DEVICE, None) == ()


def test_sensors_are_those_of_the_function_or_the_hardware() -> None:
    """A USB device has not those of its controller; each place is read once."""
    host = make_host(
        make_node("/dev/x0", pci="0000:03:00.0"),
        make_node("/dev/x1", pci="0000:03:00.0"),
        make_node("/dev/x2", pci="0000:03:00.0", hardware="devices/platform/amdgpu_xcp_1"),
        make_node("/dev/x3", pci="0000:00:14.0", usb=UsbPlace(vendor=1, product=2, port="3-2")),
        make_node("/dev/x4", hardware="devices/platform/npu"),
        "/dev/x5",
    )
    one = make_class(nodes=["/dev/x*"])
    devices = plan_classes([one], host)[ResourceName("example.com/thing")].devices
    assert [device.sensors for device in devices] == [PLACE, PLACE, PLACE, "", "devices/platform/npu", ""]
    assert [device.is_partition for device in devices] == [False, False, True, False, False, False]
    assert plan_sensors([one], host) == (PLACE, "devices/platform/npu")


def test_a_group_has_the_sensors_of_its_first_function() -> None:
    def function(**keys: Any) -> PciPlace:
        return PciPlace(vendor=1, pci_class=2, driver="vfio-pci", iommu_group="7", **keys)

    host = make_host("/dev/vfio/7", f0000_03_00_0=function(), f0000_03_00_1=function())
    assert plan_sensors([make_class(vfio=True)], host) == (PLACE,)
