"""The kubelet's own memory of who holds what, `kubelet_internal_checkpoint`.

Advisory: it may speak of pods that are gone, and its checksum covers a dump of Go structures, so it is not checked.
Whatever makes sense in it is taken, one odd entry does not hide the others.
"""

from base64 import b64decode
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from nodeagent.edge.kubelet.errors import CheckpointUnreadable
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint

CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"


def read_checkpoint(path: Path) -> KubeletCheckpoint:
    """Read and parse the file; this blocks, for as long as reading a small file takes.

    Raises:
        CheckpointUnreadable: it cannot be read, or is not a checkpoint.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointUnreadable(str(path), error.strerror or str(error)) from error
    try:
        return parse_checkpoint(content)
    except ValueError as error:
        raise CheckpointUnreadable(str(path), str(error)) from error


def parse_checkpoint(content: bytes) -> KubeletCheckpoint:
    """What the file says.

    Raises:
        ValueError: it is not a checkpoint.
    """
    try:
        data = msgspec.json.decode(content)["Data"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ValueError("it is not a JSON object with the key Data") from error
    if not isinstance(data, dict):
        raise ValueError("its Data is not an object")  # noqa: TRY004  about a file, not about a caller's argument
    entries = [_parse_entry(entry) for entry in _as_list(data.get("PodDeviceEntries"))]
    registered = {resource: _parse_ids(ids) for resource, ids in _as_dict(data.get("RegisteredDevices")).items()}
    return KubeletCheckpoint(containers=tuple(entry for entry in entries if entry), registered=registered)


def _parse_entry(entry: Any) -> ContainerDevices | None:
    fields = _as_dict(entry)
    uid, container, resource = (fields.get(key) for key in ("PodUID", "ContainerName", "ResourceName"))
    if not (isinstance(uid, str) and isinstance(container, str) and isinstance(resource, str)):
        return None
    ids = fields.get("DeviceIDs")
    # By NUMA node since Kubernetes 1.20, a plain list before; a device on two nodes stands under both.
    lists = _as_dict(ids).values() if isinstance(ids, dict) else (ids,)
    devices = dict.fromkeys(device for each in lists for device in _parse_ids(each))
    return ContainerDevices(
        pod=PodIdentity(namespace="", name="", uid=uid),
        container=container,
        resource=ResourceName(resource),
        devices=tuple(devices),
        cdi_names=_parse_answer(fields.get("AllocResp")),
    )


def _parse_answer(answer: Any) -> tuple[str, ...]:
    """The CDI names in what the plugin answered; none where that cannot be read."""
    try:
        response = wire.ContainerAllocateResponse.FromString(b64decode(answer, validate=True))
    except (TypeError, ValueError, DecodeError):
        return ()
    return tuple(device.name for device in response.cdi_devices)


def _parse_ids(ids: Any) -> tuple[DeviceId, ...]:
    return tuple(DeviceId(device) for device in _as_list(ids) if isinstance(device, str))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
