"""The values behind the answers about a class, replaced whole; pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice, Standing
from nodeagent.model.errors import DeviceUnhealthy, DeviceUnknown, RequestInvalid
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice
from nodeagent.rules.devices.answer import find_clash
from nodeagent.rules.ids import find_uuid

_TAKEN: Final = "somebody has it from before it was shared otherwise"


class ClassOffer(NamedTuple):
    """A class as offered."""

    device_class: DeviceClass
    devices: Mapping[str, HostDevice]
    """By id, without the number of a replica."""
    listed: tuple[AdvertisedDevice, ...] = ()
    extra_nodes: tuple[str, ...] = ()
    by_name: bool = False
    unnamed: str = ""
    """Why the device names cannot be given to container runtimes, where names are required."""


def select(offer: ClassOffer, resource: ResourceName, asked: Sequence[DeviceId]) -> tuple[HostDevice, ...]:
    """The devices asked for, each once.

    Raises:
        RequestInvalid: No device, a device twice, an unknown device, or two for one path is asked for.
        DeviceUnhealthy: A device must not be handed out.
    """
    known = {each.id: each.healthy for each in offer.listed}
    for name in asked:
        if name not in known:
            raise DeviceUnknown(resource, name)
    if not asked:
        raise RequestInvalid(resource, "no device is asked for")
    if len(set(asked)) < len(asked):
        doubled = next(name for name in asked if asked.count(name) > 1)
        raise RequestInvalid(resource, f"device is asked for twice: {doubled}")
    for name in asked:
        if reason := explain_unfitness(offer, name) or ("" if known[name] else _TAKEN):
            raise DeviceUnhealthy(name, reason)
    selected = tuple(offer.devices[each] for each in dict.fromkeys(map(find_uuid, asked)))
    if clash := find_clash(offer.device_class, selected):
        raise RequestInvalid(resource, clash)
    return selected


def explain_unfitness(offer: ClassOffer, name: DeviceId) -> str:
    """Why a container must not start with a device; empty when it may."""
    device = offer.devices.get(find_uuid(name))
    if device is None:
        return "it is not on this node any more"
    if device.standing is not Standing.HEALTHY:
        return device.reason
    return offer.unnamed
