"""The file `kubelet_internal_checkpoint`, in the kubelet's own format. Pure.

The checksum is not the kubelet's: the kubelet's checksum covers a dump of Go structures and is out of reach outside Go.
"""

import base64
import zlib
from typing import Final

import msgspec

from nodeagent.model.values import Value

NO_NUMA_NODE: Final = -1


class PodDevices(Value, frozen=True):
    """A container's devices of one resource."""

    pod_uid: str
    container: str
    resource: str
    devices: dict[int, tuple[str, ...]]
    """By NUMA node, -1 without a node; a device on two nodes stands under both."""
    answer: bytes
    """The serialized ContainerAllocateResponse."""

    @property
    def ids(self) -> frozenset[str]:
        """Each device once."""
        return frozenset(device for devices in self.devices.values() for device in devices)


class Checkpoint(Value, frozen=True):
    """The kubelet's memory across restarts."""

    entries: tuple[PodDevices, ...] = ()
    registered: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Healthy devices by resource."""


def render_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The file's content."""
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": entry.pod_uid,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": {str(node): list(ids) for node, ids in entry.devices.items()},
                "AllocResp": base64.b64encode(entry.answer).decode(),
            }
            for entry in checkpoint.entries
        ],
        "RegisteredDevices": {resource: list(ids) for resource, ids in checkpoint.registered.items()},
    }
    return msgspec.json.encode({"Data": data, "Checksum": zlib.crc32(msgspec.json.encode(data))})


def parse_checkpoint(content: bytes) -> Checkpoint:
    """The inverse of `render_checkpoint`.

    Raises:
        msgspec.DecodeError: The content is no JSON.
        KeyError: The content is no checkpoint.
    """
    data = msgspec.json.decode(content)["Data"]
    entries = tuple(
        PodDevices(
            pod_uid=entry["PodUID"],
            container=entry["ContainerName"],
            resource=entry["ResourceName"],
            devices={int(node): tuple(ids) for node, ids in entry["DeviceIDs"].items()},
            answer=base64.b64decode(entry["AllocResp"]),
        )
        for entry in data["PodDeviceEntries"]
    )
    registered = {resource: tuple(ids) for resource, ids in data["RegisteredDevices"].items()}
    return Checkpoint(entries=entries, registered=registered)
