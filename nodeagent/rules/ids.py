"""Names of devices: the one grammar of the kubelet's device ids and of indexes.

Owns making and reading them, so that no other code cuts such a text. `rules/fractions/device_ids.py` has the device ids
of fractions.
"""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.ids import DeviceId

Names = Mapping[str, str]
"""Short names of devices: `GPU 3` says more than its UUID."""
GONE: Final = " (gone)"
_SHARE: Final = "::"
_PART: Final = ":"
DEVICE_PREFIX: Final = "DEV-"
"""Of devices other than the driver's GPUs; the rest of such an id belongs to the device class."""
_OURS: Final = ("GPU-", "MIG-", DEVICE_PREFIX)


def parse_device_id(device_id: str) -> tuple[str, int | None]:
    """Split a kubelet device id into the device's UUID and the replica's number, `None` for a whole device."""
    uuid, separator, share = device_id.rpartition(_SHARE)
    if separator and share.isascii() and share.isdigit():
        return uuid, int(share)
    return device_id, None


def render_device_id(uuid: str, share: int | None = None) -> DeviceId:
    """The inverse of `parse_device_id`."""
    return DeviceId(uuid if share is None else f"{uuid}{_SHARE}{share}")


def render_bus_id(address: str) -> str:
    """A PCI address in the driver's spelling: `00000000:3B:00.0`."""
    domain, _, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def find_uuid(device_id: str) -> str:
    """The UUID of the device behind a kubelet device id, for any replica."""
    return parse_device_id(device_id)[0]


def is_replica(device_id: str) -> bool:
    """Whether a kubelet device id means a replica rather than a whole device."""
    return parse_device_id(device_id)[1] is not None


def is_ours(device_id: str) -> bool:
    """Whether a kubelet device id has a form of the agent's: a GPU's, a MIG device's, another device's."""
    return device_id.startswith(_OURS)


def is_of_class(device_id: str) -> bool:
    """Whether a device id means a device of a configured class rather than a GPU of the driver."""
    return device_id.startswith(DEVICE_PREFIX)


def render_index(gpu: Gpu, mig: MigDevice | None = None) -> str:
    """`0` for a GPU, `0:1` for a MIG device."""
    return str(gpu.index) if mig is None else f"{gpu.index}{_PART}{mig.index}"


def name_device(gpu: Gpu, mig: MigDevice | None = None) -> str:
    """`GPU 0`, or `GPU 0:1 (1g.10gb)`: the name of a device in every sentence, by the number that commands take."""
    return f"GPU {render_index(gpu, mig)}" + (f" ({mig.profile})" if mig is not None else "")


def build_names(inventory: Inventory | None) -> Names:
    """Short names of all devices."""
    if inventory is None:
        return {}
    # The driver counts anew: the number of a vanished GPU may be another GPU's now.
    names = {str(gone.uuid): f"GPU {gone.index}{GONE}" for gone in inventory.vanished}
    names |= {str(gpu.uuid): name_device(gpu) for gpu in inventory.gpus}
    for gpu in inventory.gpus:
        names |= {str(device.uuid): name_device(gpu, device) for device in gpu.mig_devices}
    return names


def parse_index(index: str) -> tuple[int, ...]:
    """The numbers of an index made by `render_index`, to sort as people count."""
    return tuple(int(part) for part in index.split(_PART))


def list_mig_names(gpu: Gpu, mig: MigDevice) -> tuple[str, ...]:
    """All names of a MIG device: index, UUID, and the older form of UUID."""
    old_uuid = f"MIG-{gpu.uuid}/{mig.gpu_instance_id}/{mig.compute_instance_id}"
    return render_index(gpu, mig), mig.uuid, old_uuid
