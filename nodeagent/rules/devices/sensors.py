"""Sensors of devices: readings from the kernel's files, and findings against a device.

Owns the units and forms of the files. A device without sensors is as good as one whose sensors are well.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import BlockErrors, DeviceReadings, HostDevice, HostDevices, Temperature
from nodeagent.rules.devices.group import name_resource, plan_classes

_DECIMAL: Final = re.compile(r"-?[0-9]+")
_INPUT: Final = "_input"
_COUNT: Final = re.compile(r"^(ue|ce): *([0-9]+)", re.MULTILINE)
"""Uncorrected and corrected errors in the files of the amdgpu driver."""


class Sensed(NamedTuple):
    """The files of a device's sensors, or why there is no answer."""

    texts: Mapping[str, str] = {}
    failure: str = ""


def plan_sensors(classes: Iterable[DeviceClass], host: HostDevices) -> tuple[str, ...]:
    """The directories below /sys in which devices can have sensors."""
    classes = tuple(classes)
    grouped = plan_classes(classes, host)
    places = [device.sensors for each in classes for device in grouped[name_resource(each)].devices if device.sensors]
    return tuple(dict.fromkeys(places))


def read_values(device: HostDevice, sensed: Sensed | None) -> DeviceReadings | None:
    """The readings of a device; of a partition only its GPU's temperatures, because the rest is the whole GPU's."""
    if sensed is None or not sensed.texts:
        return None
    texts = sensed.texts
    temperatures = tuple(_list_temperatures(texts))
    if device.is_partition:
        return DeviceReadings(temperatures=temperatures)
    busy, used, total = (
        _parse(texts.get(name, "")) for name in ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total")
    )
    power = _find(texts, "power1_average", "power1_input")
    energy = _find(texts, "energy1_input")
    return DeviceReadings(
        temperatures=temperatures,
        # Microwatts and microjoules.
        power_watts=power * 1e-6 if power is not None else None,
        energy_joules=energy * 1e-6 if energy is not None else None,
        utilization_ratio=busy / 100 if busy is not None else None,
        memory_used_bytes=used,
        memory_bytes=total,
        errors=tuple(_list_errors(texts)),
    )


def judge_sensors(device_class: DeviceClass, device: HostDevice, sensed: Sensed | None) -> tuple[str, ...]:
    """The findings of a device's sensors."""
    if sensed is None or not device_class.health.sensors:
        return ()
    if sensed.failure:
        return (f"its sensors give no answer: {sensed.failure}",)
    known = tuple(_list_temperatures(sensed.texts))
    hot = tuple(
        f"sensor {each.sensor} is at {each.celsius:g} °C, and {each.critical_celsius:g} °C is critical"
        for each in known
        if each.critical_celsius is not None and each.celsius >= each.critical_celsius
    )
    inputs = [name for name in sensed.texts if _is_temperature(name)]
    if inputs and not known:
        return (f"/sys/{device.sensors}/{inputs[0]} cannot be read, or says no temperature",)
    return hot


def _is_temperature(name: str) -> bool:
    return name.rpartition("/")[2].startswith("temp") and name.endswith(_INPUT)


def _list_temperatures(texts: Mapping[str, str]) -> Iterator[Temperature]:
    """Each sensor with a name of its own: its label, or that of its files."""
    seen: set[str] = set()
    for name in texts:
        celsius = _parse(texts[name])
        if celsius is None or not _is_temperature(name):
            continue
        stem = name.removesuffix(_INPUT)
        sensor = texts.get(f"{stem}_label", "") or stem.rpartition("/")[2]
        if sensor in seen:
            sensor = stem.removeprefix("hwmon/")
        seen.add(sensor)
        critical = _parse(texts.get(f"{stem}_crit", ""))
        # Thousandths of a degree; 0 stands for no limit.
        yield Temperature(sensor=sensor, celsius=celsius / 1000, critical_celsius=critical / 1000 if critical else None)


def _list_errors(texts: Mapping[str, str]) -> Iterator[BlockErrors]:
    for name, text in texts.items():
        block = name.removeprefix("ras/").removesuffix("_err_count").removeprefix("aca_")
        counts = {kind: int(count) for kind, count in _COUNT.findall(text)}
        if name.startswith("ras/") and "ue" in counts and "ce" in counts:
            yield BlockErrors(block=block, uncorrected=counts["ue"], corrected=counts["ce"])


def _find(texts: Mapping[str, str], *files: str) -> int | None:
    """The number in the first of these files of any chip."""
    values = (_parse(text) for file in files for name, text in texts.items() if name.endswith(f"/{file}"))
    return next((value for value in values if value is not None), None)


def _parse(text: str) -> int | None:
    return int(text) if _DECIMAL.fullmatch(text) else None
