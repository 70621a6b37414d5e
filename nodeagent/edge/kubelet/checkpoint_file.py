"""The kubelet's own record of allocated devices, `kubelet_internal_checkpoint`.

Advisory: the file may name pods that are gone, and the checksum, over a dump of Go structures, is not checked.
Every sensible entry is taken; an odd entry does not hide the others.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.message import DecodeError

from nodeagent.edge.kubelet.errors import CheckpointUnreadable
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint
from nodeagent.model.shim_names import read_request

T = TypeVar("T")

CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]+")
"""Text with the same encoding in every JSON encoder."""
_NULL: Final = msgspec.Raw(b"null")


def read_checkpoint(path: Path) -> KubeletCheckpoint:
    """Read and parse the file; blocks, for as long as reading a small file takes."""
    return _read(path, parse_checkpoint)


def read_pods_with(path: Path, resource: ResourceName, devices: Collection[DeviceId]) -> tuple[ContainerDevices, ...]:
    """The file's entries of pods with a container of exactly these devices; blocks for a moment."""
    return _read(path, lambda content: parse_pods_with(content, resource, devices))


def _read(path: Path, parse: Callable[[bytes], T]) -> T:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointUnreadable(str(path), error.strerror or str(error)) from error
    try:
        return parse(content)
    except ValueError as error:
        raise CheckpointUnreadable(str(path), str(error)) from error


def parse_checkpoint(content: bytes) -> KubeletCheckpoint:
    """The content of the file.

    Raises:
        ValueError: the content is not a checkpoint.
    """
    data = _parse_data(content)
    entries = [_parse_entry(entry) for entry in _as_list(data.get("PodDeviceEntries"))]
    registered = {resource: _parse_ids(ids) for resource, ids in _as_dict(data.get("RegisteredDevices")).items()}
    return KubeletCheckpoint(containers=tuple(entry for entry in entries if entry), registered=registered)


def parse_pods_with(
    content: bytes, resource: ResourceName, devices: Collection[DeviceId]
) -> tuple[ContainerDevices, ...]:
    """The entries of pods with a container of exactly these devices; for speed, thousands of others are not parsed.

    Raises:
        ValueError: the content is not a checkpoint.
    """
    wanted = set(devices)
    try:
        found = _find_likely(content, resource, next(iter(wanted), ""))
    except msgspec.DecodeError:
        # An entry is malformed: the slow way looks at each entry by itself.
        found = parse_checkpoint(content).containers
    uids = {each.pod.uid for each in found if each.resource == resource and wanted == set(each.devices)}
    return tuple(each for each in found if each.pod.uid in uids)


def _find_likely(content: bytes, resource: ResourceName, device: str) -> tuple[ContainerDevices, ...]:
    """The entries of pods with a container of the device, and perhaps of other pods.

    Raises:
        DecodeError: an entry is malformed.
    """
    entries = _NOTES.decode(content).data.entries
    needle = msgspec.json.encode(device) if _PLAIN.fullmatch(device) else b""
    uids = {entry.uid for entry in entries if entry.resource == resource and needle in bytes(entry.ids)}
    found = (_parse_entry(entry.read_fields()) for entry in entries if entry.uid in uids)
    return tuple(entry for entry in found if entry)


class _Entry(msgspec.Struct, gc=False):
    """A well-formed entry; of hundreds of entries, fields are decoded only when needed."""

    uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: msgspec.Raw = msgspec.field(name="DeviceIDs", default=_NULL)
    answer: msgspec.Raw = msgspec.field(name="AllocResp", default=_NULL)

    def read_fields(self) -> dict[str, Any]:
        """All fields of the entry, decoded."""
        return {
            "PodUID": self.uid,
            "ContainerName": self.container,
            "ResourceName": self.resource,
            "DeviceIDs": msgspec.json.decode(self.ids),
            "AllocResp": msgspec.json.decode(self.answer),
        }


class _Data(msgspec.Struct):
    """The entries of the checkpoint; the rest, thousands of ids, is passed over."""

    entries: list[_Entry] = msgspec.field(name="PodDeviceEntries")


class _Notes(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


_NOTES: Final = msgspec.json.Decoder(_Notes)


def _parse_data(content: bytes) -> dict[str, Any]:
    try:
        data = msgspec.json.decode(content)["Data"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ValueError("it is not a JSON object with the key Data") from error
    if not isinstance(data, dict):
        raise ValueError("its Data is not an object")  # noqa: TRY004  about a file, not about a caller's argument
    return data


def _parse_entry(entry: Any) -> ContainerDevices | None:
    fields = _as_dict(entry)
    uid, container, resource = (fields.get(key) for key in ("PodUID", "ContainerName", "ResourceName"))
    if not (isinstance(uid, str) and isinstance(container, str) and isinstance(resource, str)):
        return None
    return ContainerDevices(
        pod=PodIdentity(namespace="", name="", uid=uid),
        container=container,
        resource=ResourceName(resource),
        devices=_list_devices(fields),
        cdi_names=_parse_answer(fields.get("AllocResp")),
    )


def _list_devices(fields: dict[str, Any]) -> tuple[DeviceId, ...]:
    """By NUMA node since Kubernetes 1.20, a plain list before; a device on two nodes stands under both."""
    ids = fields.get("DeviceIDs")
    lists = ids.values() if isinstance(ids, dict) else (ids,)
    return tuple(dict.fromkeys(device for each in lists for device in _parse_ids(each)))


def _parse_answer(answer: Any) -> tuple[str, ...]:
    """The CDI names in the plugin's answer, for the runtime or for the shim; empty for an unreadable answer."""
    try:
        response = wire.ContainerAllocateResponse.FromString(b64decode(answer, validate=True))
    except (TypeError, ValueError, DecodeError):
        return ()
    requests = filter(None, (read_request(mount.container_path) for mount in response.mounts))
    return (*(device.name for device in response.cdi_devices), *requests)


def _parse_ids(ids: Any) -> tuple[DeviceId, ...]:
    return tuple(DeviceId(device) for device in _as_list(ids) if isinstance(device, str))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
