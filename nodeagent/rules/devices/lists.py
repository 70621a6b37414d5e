"""The devices of a class in the kubelet's counting."""

from collections.abc import Collection, Iterable

from nodeagent.model.devices import HostDevice, Standing
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import AdvertisedDevice
from nodeagent.rules.ids import find_uuid, is_share, render_device_id


def plan_list(
    devices: Iterable[HostDevice], replicas: int, held: Collection[DeviceId] = ()
) -> tuple[AdvertisedDevice, ...]:
    """Every replica of every device; an unknown device with a holder stays in the list, unhealthy.

    A device held whole is not given in replicas, nor the other way round, after a change of configuration.
    """
    taken = {find_uuid(name) for name in held if is_share(name) is not (replicas > 1)}
    listed = [
        AdvertisedDevice(
            id=name,
            healthy=device.standing is Standing.HEALTHY and device.id not in taken,
            numa_node=device.numa_node,
        )
        for device in devices
        for name in list_shares(device, replicas)
    ]
    known = {each.id for each in listed}
    return (*listed, *(AdvertisedDevice(id=name, healthy=False) for name in sorted(set(held) - known)))


def list_shares(device: HostDevice, replicas: int) -> tuple[DeviceId, ...]:
    """The ids of a device: the device's own for one container at a time, else one for each replica."""
    shares = range(replicas) if replicas > 1 else (None,)
    return tuple(render_device_id(device.id, share) for share in shares)
