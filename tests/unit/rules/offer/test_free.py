"""What somebody could get now."""

from msgspec.structs import replace

from nodeagent.model.allocation import Allocation
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.rules.offer.resources import list_free


def test_what_is_held_or_sick_is_not_free() -> None:
    """Nor what the kubelet does not know."""
    devices = tuple(AdvertisedDevice(id=DeviceId(name), healthy=name != "sick") for name in ("free", "held", "sick"))
    known = AdvertisedResource(name=ResourceName("a"), socket="s", registered=True, devices=devices)
    away = replace(known, registered=False, devices=(AdvertisedDevice(id=DeviceId("away"), healthy=True),))
    held = Allocation(number=1, resource=ResourceName("a"), devices=(DeviceId("held"),), since_seconds=0.0)
    assert list_free(PluginState(resources=(known, away)), [held]) == {"free"}
