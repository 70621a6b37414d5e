"""The specifications of the node, with a file for each existing kind of device.

Owns the kinds: the device plugin's own, and the public kinds for people and other tools.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import json
from msgspec.structs import replace

from nodeagent.components.cdi.plan_devices import (
    CREATE_LINKS,
    plan_channel_devices,
    plan_gpu_devices,
    plan_management_edits,
    plan_node_edits,
    render_hook,
)
from nodeagent.components.cdi.plan_extras import list_missing_devices, place_files, plan_extra_edits
from nodeagent.components.cdi.plan_mounts import (
    ONLY_FOR_STORAGE,
    READ_ONLY,
    list_library_directories,
    list_links,
    list_plugin_places,
    plan_environment,
    plan_mounts,
)
from nodeagent.components.cdi.spec import (
    NO_EDITS,
    ContainerEdits,
    Device,
    Hook,
    Mount,
    Spec,
    build_spec,
    drop_groups,
    find_spec_problems,
    render_spec,
    render_spec_name,
)
from nodeagent.config.sections.containers import ContainersSettings
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.nvidia import STORAGE_NODES, SWITCH_NODES
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.values import Value
from nodeagent.rules.cdi_names import (
    ALL,
    CHANNEL_KIND,
    EXTRA_KINDS,
    FRACTION_KIND,
    MANAGEMENT_KIND,
    SWITCH_KIND,
    name_own_kind,
    name_public_kind,
)

HOOK_PROGRAM: Final = "nodeagent-cdi-hook"
VOID: Final = "void"
"""The value of a variable that keeps the classic runtime wrapper from adding the GPUs a second time.

Not with IMEX channels: channels are given by name to containers whose GPUs the wrapper adds.
"""

_EXTRA_NODES: Final = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": (STORAGE_NODES,),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}


class SpecOptions(Value, frozen=True):
    """Choices left open by settings, other programs' files and the readers of the agent's files."""

    kinds: tuple[str, ...] = ()
    """The public kinds to define."""
    hook: Path | None = None
    """The program on the host that makes a linker cache; without it, no cache is needed."""
    groups: bool = False
    """Whether the container runtime reads the format's version 0.7.0, which has additional groups."""
    public_groups: bool = False
    """Whether readers of the public kinds read version 0.7.0 too."""
    containers: ContainersSettings = ContainersSettings()
    """The section with further devices and variables, and the layout, for every container with a GPU."""


class SpecPlan(Value, frozen=True):
    """The specifications to write, and the devices left out."""

    specs: tuple[Spec, ...] = ()
    left_out: tuple[str, ...] = ()
    """Devices without an entry, each with its reason."""
    common: ContainerEdits = NO_EDITS
    """The edits for every container with a GPU."""
    missing: tuple[str, ...] = ()
    """The paths of `containers.extra_devices` without a device node."""


def plan_specs(inventory: Inventory, files: DriverFiles, requests: SpecOptions) -> SpecPlan:
    """Every specification for this node."""
    gpus = plan_gpu_devices(inventory, files, hook=requests.hook)
    edits = plan_common_edits(files, requests)
    specs: list[Spec] = []
    if gpus.devices:
        specs.append(build_for(name_own_kind(files.vendor), gpus.devices, edits, groups=requests.groups))
    public = [(name_public_kind(files.vendor), gpus.devices, edits)] if gpus.devices else []
    public += _plan_public(files, requests)
    specs += [build_for(*each, groups=requests.public_groups) for each in public if each[0] in requests.kinds]
    specs += [build_for(*each, groups=requests.groups) for each in _plan_extras(files)]
    missing = list_missing_devices(requests.containers, files)
    return SpecPlan(specs=tuple(specs), left_out=gpus.left_out, common=edits, missing=missing)


def plan_common_edits(files: DriverFiles, requests: SpecOptions, *, only_looking: bool = False) -> ContainerEdits:
    """The edits for every container with a GPU, whichever GPU; fewer for a container that only manages GPUs."""
    hook = requests.hook
    nodes = plan_node_edits(() if only_looking else files.vendor.control_nodes, files)
    extras = NO_EDITS if only_looking else plan_extra_edits(requests.containers, files)
    placed = place_files(files, requests.containers.layout)
    return ContainerEdits(
        env=(_void(files), *plan_environment(files, hooks=hook is not None), *extras.env),
        device_nodes=(*nodes.device_nodes, *extras.device_nodes),
        mounts=plan_mounts(placed, hooks=hook is not None),
        hooks=tuple(_plan_hooks(files, placed, hook, only_looking=only_looking)) if hook is not None else (),
        additional_gids=tuple(sorted({*nodes.additional_gids, *extras.additional_gids})),
    )


def build_for(kind: str, devices: tuple[Device, ...], edits: ContainerEdits, *, groups: bool) -> Spec:
    """A specification for readers with or without knowledge of groups."""
    if groups:
        return build_spec(kind, devices, edits)
    without = tuple(Device(name=each.name, container_edits=drop_groups(each.container_edits)) for each in devices)
    return build_spec(kind, without, drop_groups(edits))


def _void(files: DriverFiles) -> str:
    return f"{files.vendor.visible_devices}={VOID}"


def _plan_public(files: DriverFiles, requests: SpecOptions) -> Iterator[tuple[str, tuple[Device, ...], ContainerEdits]]:
    """The public kinds beside the GPUs'; tools for MIG need the kinds before any MIG device exists."""
    management, switches = plan_management_edits(files), plan_node_edits(SWITCH_NODES, files)
    if management.device_nodes:
        common = plan_common_edits(files, requests, only_looking=True)
        yield MANAGEMENT_KIND, (Device(name=ALL, container_edits=management),), common
    if switches.device_nodes:
        yield SWITCH_KIND, (Device(name=ALL, container_edits=switches),), ContainerEdits(env=(_void(files),))


def _plan_extras(files: DriverFiles) -> Iterator[tuple[str, tuple[Device, ...], ContainerEdits]]:
    for name, paths in _EXTRA_NODES.items():
        edits = plan_node_edits(paths, files)
        if edits.device_nodes:
            mounts = tuple(_plan_storage_mounts(files)) if name == "gds" else ()
            device = Device(name=ALL, container_edits=replace(edits, mounts=mounts))
            yield EXTRA_KINDS[name], (device,), ContainerEdits(env=(_void(files),))
    if channels := plan_channel_devices(files):
        yield CHANNEL_KIND, channels, NO_EDITS


def _plan_storage_mounts(files: DriverFiles) -> Iterator[Mount]:
    for each in files.files:
        if each.path in ONLY_FOR_STORAGE:
            yield Mount(host_path=each.host_path, container_path=each.path, options=READ_ONLY)


def _plan_hooks(files: DriverFiles, placed: DriverFiles, hook: Path, *, only_looking: bool) -> Iterator[Hook]:
    """The links are of every place of a library; a linker cache needs one place."""
    links = [
        f"--link={'../' * link.count('/')}{library.name}::{library.directory}/{link}"
        for library in placed.libraries
        for link in list_links(library)
    ]
    links += [
        f"--link={library.path}::{place}" for library in files.libraries for place in list_plugin_places(library, files)
    ]
    if links:
        yield render_hook(hook, CREATE_LINKS, *links)
    directories = list_library_directories(files)
    if directories:
        # Before the cache is made, because it adds to the input of the cache.
        yield render_hook(hook, "enable-cuda-compat", f"--host-driver-version={files.version}")
        yield render_hook(hook, "update-ldcache", *(f"--folder={directory}" for directory in directories))
    if not only_looking:
        yield render_hook(hook, "disable-device-node-modification")
        yield render_hook(hook, "update-application-profile")


_WRITABLE = ("rw", "nosuid", "nodev", "noexec", "bind")
_MEMORY = "tmpfs"


class FractionUndescribed(NodeagentError):
    """A GPU cannot be given to a container now."""

    def __init__(self, gpu: str, reason: str) -> None:
        super().__init__(f"{gpu} cannot be described to the container runtime: {reason}")


def plan_fraction(
    names: Sequence[str],
    gpus: Sequence[GpuUuid],
    given: tuple[Iterable[ContainerMount], Mapping[str, str]],
    node: tuple[Inventory, DriverFiles, SpecOptions],
    common: ContainerEdits,
) -> Spec:
    """The file that gives each of the containers' unqualified CDI names the GPUs.

    `given` are further mounts, and the variables to set; `common` is computed before a pod waits.

    Raises:
        FractionUndescribed: A GPU has no device node.
    """
    inventory, files, requests = node
    # A pod waits, and the other GPUs of the node are none of its business.
    meant = tuple(gpu for gpu in inventory.gpus if gpu.uuid in gpus)
    plan = plan_gpu_devices(replace(inventory, gpus=meant), files, hook=requests.hook)
    edits = {device.name: device.container_edits for device in plan.devices}
    for gpu in gpus:
        if gpu not in edits:
            raise FractionUndescribed(
                gpu, next((each for each in plan.left_out if gpu in each), "it is not on this node")
            )
    merged = _merge([edits[gpu] for gpu in gpus])
    mounts, environment = given
    variables = tuple(f"{key}={value}" for key, value in sorted(environment.items()))
    merged = replace(merged, env=(*merged.env, *variables), mounts=tuple(map(render_mount, mounts)))
    devices = tuple(Device(name=name, container_edits=merged) for name in names)
    return build_for(FRACTION_KIND, devices, common, groups=requests.groups)


def _merge(all_edits: Sequence[ContainerEdits]) -> ContainerEdits:
    return ContainerEdits(
        env=tuple(line for edits in all_edits for line in edits.env),
        device_nodes=tuple(dict.fromkeys(node for edits in all_edits for node in edits.device_nodes)),
        hooks=tuple(hook for edits in all_edits for hook in edits.hooks),
        additional_gids=tuple(sorted({gid for edits in all_edits for gid in edits.additional_gids})),
    )


def render_mount(mount: ContainerMount) -> Mount:
    """A mount in the format's form."""
    if mount.memory_bytes:
        # The container's processes make files there under any user, and no user removes another's files.
        limits = ("rw", "nosuid", "nodev", "noexec", "mode=1777", f"size={mount.memory_bytes}")
        return Mount(host_path=_MEMORY, container_path=mount.container_path, options=limits, type=_MEMORY)
    options = READ_ONLY if mount.read_only else _WRITABLE
    return Mount(host_path=mount.host_path, container_path=mount.container_path, options=options)


class SpecInvalid(NodeagentError):
    """A specification of the agent would be refused by a runtime, and is not written."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        super().__init__(
            f"the specification {name} would be invalid ({'; '.join(problems)}):"
            " the file in place stays, report this with the output of `nodeagent cdi generate`"
        )


def render_specs(plan: SpecPlan) -> dict[str, bytes]:
    """The content of each file by file name.

    Raises:
        SpecInvalid: A runtime would refuse a file.
    """
    rendered = {render_spec_name(spec.kind): render_spec(spec) for spec in plan.specs}
    for name, content in rendered.items():
        if problems := find_spec_problems(json.decode(content)):
            raise SpecInvalid(name, problems)
    return rendered
