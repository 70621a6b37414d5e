"""A CDI specification as values, in the shape of the file.

Owns the part of the format written by the agent, and the lowest version of the format for a content.
Refuses everything else: `registry.py` and `validate.py` read other programs' files.
"""

import re
from typing import Final, Literal

from msgspec import json
from msgspec.structs import replace

from nodeagent.model.values import Value

_BASE_VERSION: Final = (0, 3, 0)
_MOUNT_TYPE_VERSION: Final = (0, 4, 0)
_HOST_PATH_VERSION: Final = (0, 5, 0)
_DIGIT_NAME_VERSION: Final = (0, 5, 0)
_DOTTED_CLASS_VERSION: Final = (0, 6, 0)
_GROUPS_VERSION: Final = (0, 7, 0)
_DIGIT_FIRST: Final = re.compile(r"[0-9]")


class DeviceNode(Value, frozen=True, rename="camel", omit_defaults=True):
    """A device node in the container; mode and group are written where they restrict access.

    Neither type nor numbers are written: with numbers the runtime would believe a value changed by a reboot; without
    numbers the runtime reads the node itself.
    """

    path: str
    host_path: str = ""
    file_mode: int = 0
    permissions: str = ""
    gid: int = 0


class Mount(Value, frozen=True, rename="camel", omit_defaults=True):
    """A bind mount, or a file system of the named type."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(Value, frozen=True, rename="camel", omit_defaults=True):
    """A program started on the host by the runtime while a container is created."""

    hook_name: Literal["createContainer"]
    path: str
    args: tuple[str, ...] = ()


class ContainerEdits(Value, frozen=True, rename="camel", omit_defaults=True):
    """The changes of a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()
    """Groups that the container's process is made a member of."""


NO_EDITS: Final = ContainerEdits()


class Device(Value, frozen=True, rename="camel", omit_defaults=True):
    """A name for containers to ask for, and the edits of its container."""

    name: str
    container_edits: ContainerEdits


class Spec(Value, frozen=True, rename="camel", omit_defaults=True):
    """A specification file."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]
    container_edits: ContainerEdits = NO_EDITS
    """Applied once, when any device of the file is asked for."""


def build_spec(kind: str, devices: tuple[Device, ...], edits: ContainerEdits = NO_EDITS) -> Spec:
    """A specification in the lowest version for its content, because older readers refuse newer versions."""
    version = max(
        _BASE_VERSION,
        _DOTTED_CLASS_VERSION if "." in kind.partition("/")[2] else _BASE_VERSION,
        *(_need(device) for device in devices),
        _need_for_edits(edits),
    )
    return Spec(cdi_version=".".join(map(str, version)), kind=kind, devices=devices, container_edits=edits)


def drop_groups(edits: ContainerEdits) -> ContainerEdits:
    """The edits for readers without groups: the nodes keep their groups, the container's process gets no groups."""
    return replace(edits, additional_gids=())


def render_spec(spec: Spec) -> bytes:
    """The file's content: equal specifications give equal bytes."""
    return json.format(json.encode(spec), indent=1) + b"\n"


def render_spec_name(kind: str) -> str:
    """The name of the file for a kind, as other tools would name it."""
    return f"{kind.replace('/', '-')}.json"


def _need(device: Device) -> tuple[int, int, int]:
    name_version = _DIGIT_NAME_VERSION if _DIGIT_FIRST.match(device.name) else _BASE_VERSION
    return max(name_version, _need_for_edits(device.container_edits))


def _need_for_edits(edits: ContainerEdits) -> tuple[int, int, int]:
    if edits.additional_gids:
        return _GROUPS_VERSION
    if any(node.host_path for node in edits.device_nodes):
        return _HOST_PATH_VERSION
    return _MOUNT_TYPE_VERSION if any(mount.type for mount in edits.mounts) else _BASE_VERSION
