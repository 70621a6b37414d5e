"""A resource that pods get by the device plugin and by claims: when it is one, and what is said of it."""

import pytest

from nodeagent.components.slices.doubled import explain_doubled, selects_driver
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.slices import DeviceClass, PublishedSlices
from tests.support.slices import DRIVER

OURS = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
GPU = DeviceClass(name="gpu.nvidia.com", resource="nvidia.com/gpu", selectors=(OURS,))
FOREIGN = DeviceClass(name="nic", resource="nvidia.com/gpu", selectors=("device.driver == 'x'",))
SLICES = PublishedSlices(driver=DRIVER, pool="node-1", slices=1, devices=4)


def offer(name: str = "nvidia.com/gpu", count: int = 2, *, healthy: bool = True) -> AdvertisedResource:
    devices = tuple(AdvertisedDevice(id=DeviceId(f"GPU-{number}"), healthy=healthy) for number in range(count))
    return AdvertisedResource(name=ResourceName(name), socket="x.sock", registered=True, devices=devices)


def plugin(*resources: AdvertisedResource) -> PluginState:
    return PluginState(resources=resources)


def test_a_name_that_a_class_and_the_device_plugin_have_is_doubled() -> None:
    """Both numbers are said: they are different GPUs, of which a pod gets the one or the other."""
    (text,) = explain_doubled([GPU], plugin(offer(), offer("nvidia.com/mig-1g.10gb")), SLICES).values()
    assert text.startswith(
        "the device plugin offers 2 of nvidia.com/gpu, and by the class gpu.nvidia.com the name means"
    )
    assert "the 4 in slices, too" in text


def test_devices_that_are_all_ill_double_it_all_the_same() -> None:
    """Just then the next pod goes to the slices."""
    assert list(explain_doubled([GPU], plugin(offer(healthy=False)), SLICES)) == ["nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("classes", "state", "slices"),
    [
        ([], plugin(offer()), SLICES),
        ([GPU], None, SLICES),
        ([GPU], plugin(), SLICES),
        ([GPU], plugin(offer(count=0)), SLICES),
        ([GPU], plugin(offer("nvidia.com/gpu.shared")), SLICES),
        ([GPU], plugin(offer()), None),
        ([GPU], plugin(offer()), PublishedSlices(driver=DRIVER, pool="node-1")),
        ([DeviceClass(name="plain", selectors=(OURS,))], plugin(offer()), SLICES),
        (
            [DeviceClass(name="nic", resource="nvidia.com/gpu", selectors=("device.driver == 'x'",))],
            plugin(offer()),
            SLICES,
        ),
    ],
)
def test_a_node_with_one_way_has_nothing_doubled(
    classes: list[DeviceClass], state: PluginState | None, slices: PublishedSlices | None
) -> None:
    """Without a class of the name, without a device of the plugin, or without one in slices."""
    assert explain_doubled(classes, state, slices) == {}


def test_several_classes_of_a_name_are_named_in_order() -> None:
    other = DeviceClass(name="a-class", resource="nvidia.com/gpu")
    (text,) = explain_doubled([GPU, other], plugin(offer()), SLICES).values()
    assert "by the classes a-class and gpu.nvidia.com the name" in text


@pytest.mark.parametrize(
    ("selectors", "selected"),
    [
        ((), True),
        (("true",), True),
        ((OURS,), True),
        ((f'device.driver == "{DRIVER}"',), True),
        (("device.driver in ['other.example.com']",), False),
        (("device.driver == 'other.example.com'", OURS), False),
        ((f"device.driver == 'my-{DRIVER}'",), False),
        (("device.attributes['x'].y == 'z'",), True),
    ],
)
def test_a_class_selects_the_driver_unless_it_asks_for_another(selectors: tuple[str, ...], *, selected: bool) -> None:
    """All selectors of a class must hold; one that asks for no driver keeps none out."""
    assert selects_driver(DeviceClass(name="c", selectors=selectors), DRIVER) is selected
