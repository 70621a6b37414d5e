"""How devices are named: the one grammar of the kubelet's device ids and of indexes.

Owns making and reading them, so that nothing else cuts such a text.
"""

from typing import Final

from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.ids import DeviceId

_SHARE: Final = "::"
_PART: Final = ":"
_UUIDS: Final = ("GPU-", "MIG-")


def parse_device_id(device_id: str) -> tuple[str, int | None]:
    """Split a kubelet device id into the device's UUID and the number of the share, `None` for a whole device."""
    uuid, separator, share = device_id.rpartition(_SHARE)
    if separator and share.isascii() and share.isdigit():
        return uuid, int(share)
    return device_id, None


def render_device_id(uuid: str, share: int | None = None) -> DeviceId:
    """The inverse of `parse_device_id`."""
    return DeviceId(uuid if share is None else f"{uuid}{_SHARE}{share}")


def find_uuid(device_id: str) -> str:
    """The UUID of the device that a kubelet device id means, whichever share of it."""
    return parse_device_id(device_id)[0]


def is_share(device_id: str) -> bool:
    """Whether a kubelet device id means a share of a device rather than all of it."""
    return parse_device_id(device_id)[1] is not None


def is_ours(device_id: str) -> bool:
    """Whether a kubelet device id has the form of a GPU's or a MIG device's, whoever offers it."""
    return device_id.startswith(_UUIDS)


def render_index(gpu: Gpu, mig: MigDevice | None = None) -> str:
    """`0` for a GPU, `0:1` for a MIG device."""
    return str(gpu.index) if mig is None else f"{gpu.index}{_PART}{mig.index}"


def parse_index(index: str) -> tuple[int, ...]:
    """The numbers of an index that `render_index` made, which sort as people count."""
    return tuple(int(part) for part in index.split(_PART))


def list_mig_names(gpu: Gpu, mig: MigDevice) -> tuple[str, ...]:
    """All that a MIG device is called: its index, its UUID, and the older form of UUID."""
    old_uuid = f"MIG-{gpu.uuid}/{mig.gpu_instance_id}/{mig.compute_instance_id}"
    return render_index(gpu, mig), mig.uuid, old_uuid
