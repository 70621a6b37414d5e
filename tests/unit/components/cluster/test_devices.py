"""What the node's condition of a class of devices says."""

import pytest
from msgspec.structs import replace

from nodeagent.components.cluster.status import decide_device_conditions
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import DeviceClassState, DeviceTable, HostDevice, Standing
from nodeagent.model.ids import DeviceId, ResourceName

CARD = ResourceName("example.com/card")
CLASS = DeviceClass(resource=CARD, nodes=("/dev/card*",), condition="CardsReady")
WELL = HostDevice(id=DeviceId("a"), name="/dev/card0", nodes=("/dev/card0",))
ILL = replace(WELL, id=DeviceId("b"), name="/dev/card1", standing=Standing.UNHEALTHY, reason="too hot")


def table(*devices: HostDevice) -> DeviceTable:
    return DeviceTable(classes=(DeviceClassState(resource=CARD, devices=devices),))


@pytest.mark.parametrize(
    ("devices", "expected", "status", "reason", "message"),
    [
        ((WELL,), None, "True", "DevicesReady", "1 of 1 example.com/card works"),
        ((WELL, ILL), None, "True", "SomeDevicesFail", "1 of 2 example.com/card works; /dev/card1: too hot"),
        ((WELL,), 3, "True", "SomeDevicesFail", "1 of 3 example.com/card works; 2 not found"),
        ((ILL,), None, "False", "NoDeviceWorks", "0 of 1 example.com/card work; /dev/card1: too hot"),
        ((), 2, "False", "NoDeviceWorks", "0 of 2 example.com/card work; 2 not found"),
        ((), None, "False", "NoDevices", "no example.com/card is there"),
        ((), 0, "False", "NoDevices", "no example.com/card is there"),
    ],
)
def test_a_class_is_ready_while_one_of_its_devices_works(
    devices: tuple[HostDevice, ...], expected: int | None, status: str, reason: str, message: str
) -> None:
    """The message names what does not work, and how many are not there at all."""
    (found,) = decide_device_conditions(table(*devices), [replace(CLASS, expected=expected)])
    assert found.type == "devices.nodeagent.io/CardsReady"
    assert (found.status, found.reason, found.message) == (status, reason, message)


def test_nothing_is_said_of_what_is_not_known_or_has_no_word() -> None:
    """Before the first look, of a class that is not served yet, and of one without the setting."""
    assert list(decide_device_conditions(None, [CLASS])) == []
    assert list(decide_device_conditions(DeviceTable(), [CLASS])) == []
    assert list(decide_device_conditions(table(WELL), [replace(CLASS, condition=None)])) == []
