"""The specifications that this node should have, one for each kind of device that exists.

Owns the kinds: those that the device plugin hands out, and the public one for people and other tools.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.components.cdi.plan_devices import (
    CONTROL_NODES,
    plan_channel_devices,
    plan_gpu_devices,
    plan_node_device,
)
from nodeagent.components.cdi.plan_mounts import (
    ONLY_FOR_STORAGE,
    READ_ONLY,
    list_library_directories,
    list_links,
    plan_mounts,
)
from nodeagent.components.cdi.spec import ContainerEdits, Device, Hook, Mount, Spec, build_spec
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Inventory
from nodeagent.model.values import Value
from nodeagent.rules.cdi_names import ALL, CHANNEL_KIND, EXTRA_KINDS, OWN_KIND, PUBLIC_KIND

CREATE: Final = "createContainer"
HOOK_PROGRAM: Final = "nodeagent-cdi-hook"
VOID: Final = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps the classic runtime wrapper from adding the GPUs a second time."""

_EXTRA_NODES: Final = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs*",),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}


class SpecPlan(Value, frozen=True):
    """What should be written, and what could not be described."""

    specs: tuple[Spec, ...] = ()
    left_out: tuple[str, ...] = ()
    """Devices without an entry, each with its reason."""


def plan_specs(inventory: Inventory, files: DriverFiles, *, public: bool, hook: Path | None = None) -> SpecPlan:
    """Every specification for this node.

    Args:
        inventory: the GPUs.
        files: the driver as it lies on the host.
        public: whether the kind for people and other tools is wanted too.
        hook: the program on the host that makes a linker cache; without one, none is needed.
    """
    gpus = plan_gpu_devices(inventory, files)
    edits = plan_common_edits(files, hook)
    specs: list[Spec] = []
    if gpus.devices:
        specs.append(build_spec(OWN_KIND, gpus.devices, edits))
    if gpus.devices and public:
        specs.append(build_spec(PUBLIC_KIND, gpus.devices, edits))
    specs += _plan_extras(files)
    if channels := plan_channel_devices(files):
        specs.append(build_spec(CHANNEL_KIND, channels))
    return SpecPlan(specs=tuple(specs), left_out=gpus.left_out)


def plan_common_edits(files: DriverFiles, hook: Path | None) -> ContainerEdits:
    """What every container with a GPU gets, whichever GPU it is."""
    return ContainerEdits(
        env=(VOID,),
        device_nodes=plan_node_device(CONTROL_NODES, files),
        mounts=plan_mounts(files, hooks=hook is not None),
        hooks=tuple(_plan_hooks(files, hook)) if hook is not None else (),
    )


def _plan_extras(files: DriverFiles) -> Iterator[Spec]:
    for name, paths in _EXTRA_NODES.items():
        nodes = plan_node_device(paths, files)
        if nodes:
            mounts = tuple(_plan_storage_mounts(files)) if name == "gds" else ()
            device = Device(name=ALL, container_edits=ContainerEdits(device_nodes=nodes, mounts=mounts))
            yield build_spec(EXTRA_KINDS[name], (device,))


def _plan_storage_mounts(files: DriverFiles) -> Iterator[Mount]:
    for each in files.files:
        if each.path in ONLY_FOR_STORAGE:
            yield Mount(host_path=each.host_path, container_path=each.path, options=READ_ONLY)


def _plan_hooks(files: DriverFiles, hook: Path) -> Iterator[Hook]:
    links = [
        f"--link={name}::{library.directory}/{link}"
        for library in files.libraries
        for link in list_links(library)
        for name in ("../" * link.count("/") + library.name,)
    ]
    if links:
        yield Hook(hook_name=CREATE, path=str(hook), args=(hook.name, "create-symlinks", *links))
    directories = list_library_directories(files)
    if directories:
        folders = (f"--folder={directory}" for directory in directories)
        yield Hook(hook_name=CREATE, path=str(hook), args=(hook.name, "update-ldcache", *folders))
    yield Hook(hook_name=CREATE, path=str(hook), args=(hook.name, "disable-device-node-modification"))
