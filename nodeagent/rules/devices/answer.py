"""The answer for a container with its devices: device nodes, mounts, variables, or CDI names.

Owns the names of nodes in the container and the names in specifications.

A name means the same as long as the device exists, so that a late container is not given another device:
a device counted from 0 has a name for each possible place among a container's devices.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Final

from msgspec import json

from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.devices import HostDevice, Standing
from nodeagent.model.ids import DeviceId
from nodeagent.model.plugin import AdvertisedDevice, ContainerAnswer, ContainerDevice, ContainerMount
from nodeagent.rules.cdi_names import FRACTION_KIND, qualify
from nodeagent.rules.devices.group import name_resource, parse_id, sort_key, split_number
from nodeagent.rules.devices.match import match_path
from nodeagent.rules.ids import find_uuid, is_replica, render_device_id

SPEC_PREFIX: Final = "nodeagent-device-"
"""The prefix of the specifications' file names, and of no other file's."""
PLACES_MAX: Final = 64
"""The most devices of a counted class with names, as many names for each; a larger class is given by nodes."""
CDI_VERSION: Final = "0.5.0"
"""The first version in which a node may have another name in the container."""
_NUMBER: Final = "{number}"
_CLASS: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")


def order_devices(devices: Iterable[HostDevice]) -> tuple[HostDevice, ...]:
    """In a container's order of counting."""
    return tuple(sorted(devices, key=lambda device: sort_key(device.nodes[0])))


def place_nodes(device_class: DeviceClass, devices: Iterable[HostDevice]) -> tuple[tuple[str, str], ...]:
    """Each node's path on the host, and in the container."""
    counts: dict[str, int] = {}
    placed = []
    for node in (node for device in order_devices(devices) for node in device.nodes):
        form, number = _find_form(device_class, node)
        placed.append((node, _name_node(device_class, node, counts.get(form, 0))))
        counts[form] = counts.get(form, 0) + bool(number)
    return tuple(placed)


def find_clash(device_class: DeviceClass, devices: Iterable[HostDevice]) -> str:
    """The message for two nodes that would have one path in the container; empty without any."""
    taken: dict[str, str] = {}
    for node, path in place_nodes(device_class, devices):
        if (other := taken.setdefault(path, node)) != node:
            return f"{other} and {node} would both be {path} in the container; give it {_NUMBER} in container_paths"
    return ""


def _find_form(device_class: DeviceClass, node: str) -> tuple[str, str]:
    """The node's path in the container before its number is put in, and the number."""
    stem, _ = split_number(node)
    number = node.removeprefix(stem)
    forms = (path for pattern, path in device_class.container_paths.items() if match_path(node, pattern))
    return next(forms, stem + _NUMBER if number else node), number


def _name_node(device_class: DeviceClass, node: str, count: int) -> str:
    """The node's path in the container, where `count` nodes of its kind come before it."""
    form, number = _find_form(device_class, node)
    return form.replace(_NUMBER, str(count) if device_class.renumber and number else number)


def name_kind(resource: str) -> str:
    """The CDI kind of a class: never a kind written by a vendor's own tool."""
    domain, _, base = resource.partition("/")
    name = base if _CLASS.fullmatch(base) else f"d{sha256(base.encode()).hexdigest()[:8]}"
    return f"devices.{domain}/{name}"


def name_spec_file(resource: str) -> str:
    """The file with the names of a class."""
    return f"{SPEC_PREFIX}{name_kind(resource).removeprefix('devices.').replace('/', '-')}.json"


def is_named(device_class: DeviceClass, devices: Sequence[HostDevice]) -> bool:
    """Whether CDI names suffice for any container of the class."""
    if not device_class.renumber:
        return True
    kinds = [sorted(_find_form(device_class, node)[0] for node in device.nodes) for device in devices]
    return len(devices) <= PLACES_MAX and all(each == sorted(set(each)) == kinds[0] for each in kinds)


def name_devices(device_class: DeviceClass, devices: Sequence[HostDevice]) -> tuple[str, ...]:
    """The names for the given devices of one container."""
    resource = name_resource(device_class)
    names = [parse_id(device.id, resource) or "" for device in order_devices(devices)]
    if device_class.renumber:
        names = [_name_place(name, place) for place, name in enumerate(names)]
    return tuple(qualify(name_kind(resource), name) for name in names)


def _name_place(name: str, place: int) -> str:
    return f"{name}.as.{place}"


def render_spec(device_class: DeviceClass, devices: Sequence[HostDevice]) -> bytes:
    """The specification of a class: a CDI file."""
    resource, entries = name_resource(device_class), []
    for device in devices:
        name = parse_id(device.id, resource) or ""
        links = [(node, link) for link, node in device.links]
        for place in range(len(devices)) if device_class.renumber else (0,):
            nodes = [(node, _name_node(device_class, node, place)) for node in device.nodes]
            name_here = _name_place(name, place) if device_class.renumber else name
            entries.append(_render_device(device_class, name_here, (*nodes, *links)))
    content = {"cdiVersion": CDI_VERSION, "kind": name_kind(resource), "devices": entries}
    return json.format(json.encode(content), indent=2) + b"\n"


def _render_device(device_class: DeviceClass, name: str, nodes: Iterable[tuple[str, str]]) -> dict[str, object]:
    rendered = [{"path": there, "hostPath": here, "permissions": device_class.permissions} for here, there in nodes]
    return {"name": name, "containerEdits": {"deviceNodes": rendered}}


def render_fraction_spec(names: Sequence[str], answer: ContainerAnswer) -> bytes:
    """The specification of one container's fractions: each name stands for all of the answer."""
    edits: dict[str, object] = {
        "env": [f"{name}={value}" for name, value in sorted(answer.environment.items())],
        "deviceNodes": [
            {"path": each.container_path, "hostPath": each.host_path, "permissions": each.permissions}
            for each in answer.devices
        ],
        "mounts": [
            {
                "hostPath": each.host_path,
                "containerPath": each.container_path,
                "options": ["ro" if each.read_only else "rw", "nosuid", "nodev", "rbind", "rprivate"],
            }
            for each in answer.mounts
        ],
    }
    devices = [{"name": name, "containerEdits": {key: each for key, each in edits.items() if each}} for name in names]
    content = {"cdiVersion": CDI_VERSION, "kind": FRACTION_KIND, "devices": devices}
    return json.format(json.encode(content), indent=2) + b"\n"


def plan_answer(
    device_class: DeviceClass, devices: Sequence[HostDevice], extra_nodes: Sequence[str], *, by_name: bool
) -> ContainerAnswer:
    """The answer for one container; `by_name` where the runtime is told names rather than nodes."""
    placed = place_nodes(device_class, devices)
    links = [(node, link) for device in devices for link, node in device.links]
    extras = [(node, node) for node in extra_nodes]
    return ContainerAnswer(
        environment=_plan_environment(device_class, devices, [there for _, there in placed]),
        mounts=tuple(
            ContainerMount(
                container_path=str(mount.container or mount.host), host_path=str(mount.host), read_only=mount.read_only
            )
            for mount in device_class.mounts
        ),
        devices=tuple(
            ContainerDevice(container_path=there, host_path=here, permissions=device_class.permissions)
            for here, there in (extras if by_name else (*placed, *links, *extras))
        ),
        cdi_devices=name_devices(device_class, devices) if by_name else (),
    )


def _plan_environment(device_class: DeviceClass, devices: Sequence[HostDevice], nodes: Sequence[str]) -> dict[str, str]:
    ordered = order_devices(devices)
    names = [parse_id(device.id, name_resource(device_class)) or "" for device in ordered]
    numbers = [split_number(device.nodes[0])[1] for device in ordered]
    said = {
        "{nodes}": ",".join(nodes),
        "{devices}": ",".join(names),
        "{indexes}": ",".join(str(each) for each in numbers if each is not None),
        # The partitions of a GPU have one address.
        "{pci_addresses}": ",".join(dict.fromkeys(each for device in ordered for each in device.pci_addresses)),
        "{count}": str(len(devices)),
    }
    environment = {}
    for name, text in device_class.environment.items():
        for mark, value in said.items():
            text = text.replace(mark, value)  # noqa: PLW2901  # one text, mark by mark
        environment[name] = text
    return environment


def plan_list(
    devices: Iterable[HostDevice],
    replicas: int,
    held: Collection[DeviceId] = (),
    divided: Collection[str] = (),
) -> tuple[AdvertisedDevice, ...]:
    """Every replica of every device; an unknown device with a holder stays in the list, unhealthy.

    A device held whole is not given in replicas, nor the other way round, after a change of configuration; nor is a
    device in `divided`, of which containers have fractions.
    """
    taken = {find_uuid(name) for name in held if is_replica(name) is not (replicas > 1)}.union(divided)
    listed = [
        AdvertisedDevice(
            id=name,
            healthy=device.standing is Standing.HEALTHY and device.id not in taken,
            numa_node=device.numa_node,
        )
        for device in devices
        for name in list_replicas(device, replicas)
    ]
    known = {each.id for each in listed}
    return (*listed, *(AdvertisedDevice(id=name, healthy=False) for name in sorted(set(held) - known)))


def list_replicas(device: HostDevice, replicas: int) -> tuple[DeviceId, ...]:
    """The ids of a device: the device's own for one container at a time, else one for each replica."""
    shares = range(replicas) if replicas > 1 else (None,)
    return tuple(render_device_id(device.id, share) for share in shares)
