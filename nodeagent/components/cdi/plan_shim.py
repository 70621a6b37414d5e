"""The runtime shim's table, from the specifications of the node.

Owns the names that the shim understands beside CDI's own, and the capability of each entry: a specification has all of
the driver, the shim gives a container the capabilities it asked for.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Final

from nodeagent.components.cdi.capabilities import find_capability
from nodeagent.components.cdi.plan_devices import CREATE_LINKS, plan_node_edits
from nodeagent.components.cdi.spec import ContainerEdits, Hook, Spec
from nodeagent.model.cdi import DriverFiles
from nodeagent.model.gpu import Gpu, Inventory, MigDevice
from nodeagent.model.nvidia import CAPABILITY_NODE, REQUIRED_BRANDS
from nodeagent.model.shim import (
    Capability,
    ShimDevice,
    ShimEdits,
    ShimEntry,
    ShimEnv,
    ShimGroup,
    ShimHook,
    ShimMount,
    ShimNode,
    ShimPolicy,
    ShimTable,
)
from nodeagent.rules.cdi_names import ALL, CHANNEL_KIND, EXTRA_KINDS, SWITCH_KIND, name_own_kind, qualify
from nodeagent.rules.ids import list_mig_names, render_index

_COMMON: Final = "common"
_EXTRA_KINDS: Final = EXTRA_KINDS | {"nvswitch": SWITCH_KIND}
_RIGHTS: Final = {"mig-config": "config", "mig-monitor": "monitor"}
_LINK: Final = "--link="


def plan_shim_table(
    inventory: Inventory,
    files: DriverFiles,
    specs: Iterable[Spec],
    policy: ShimPolicy,
    *,
    cuda: str = "",
    fresh: tuple[tuple[str, str], ...] = (),
) -> ShimTable:
    """Every device of the node under all its names, with its edits for a container."""
    by_kind = {spec.kind: spec for spec in specs}
    devices = [
        *_plan_gpus(inventory, by_kind, files),
        *_plan_channels(by_kind),
        *_plan_extras(by_kind, files),
        *(device for spec in by_kind.values() for device in plan_qualified(spec)),
    ]
    return ShimTable(policy=policy, cuda=cuda, driver=files.version, fresh=fresh, devices=tuple(devices))


def plan_entries(edits: ContainerEdits) -> ShimEdits:
    """The same edits, each with its capabilities."""
    return tuple(_list_entries(edits))


def _list_entries(edits: ContainerEdits) -> Iterator[ShimEntry]:
    for variable in edits.env:
        name, _, value = variable.partition("=")
        # TRITON_LIBCUDA_PATH and the like lead to a library that has to be there.
        yield ShimEnv(wanted_by=Capability.ALWAYS, name=name, value=value)
    for node in edits.device_nodes:
        yield ShimNode(
            wanted_by=find_capability(node.path),
            path=node.path,
            host_path=node.host_path or node.path,
            permissions=node.permissions or "rwm",
            mode=node.file_mode,
            gid=node.gid,
        )
    for mount in edits.mounts:
        yield ShimMount(
            wanted_by=find_capability(mount.host_path),
            path=mount.container_path,
            host_path=mount.host_path,
            options=mount.options,
        )
    for hook in edits.hooks:
        yield from _plan_hook(hook)
    for gid in edits.additional_gids:
        # A group comes with the nodes that it opens.
        wanted = (find_capability(node.path) for node in edits.device_nodes if node.gid == gid)
        yield ShimGroup(wanted_by=reduce(or_, wanted, Capability(0)), gid=gid)


def _plan_hook(hook: Hook) -> Iterator[ShimHook]:
    """A hook that makes links runs once for each capability, because a dangling link would hide an existing file."""
    if CREATE_LINKS not in hook.args:
        yield ShimHook(wanted_by=Capability.ALWAYS, stage=hook.hook_name, path=hook.path, args=hook.args)
        return
    links: dict[Capability, list[str]] = {}
    for argument in hook.args:
        if argument.startswith(_LINK):
            target, _, place = argument.removeprefix(_LINK).partition("::")
            # A link in /dev/dri leads to a node beside it, every other to a library, whose name tells the capability.
            links.setdefault(find_capability(place if place.startswith("/dev/") else target), []).append(argument)
    for capability, arguments in links.items():
        args = (*(each for each in hook.args if not each.startswith(_LINK)), *arguments)
        yield ShimHook(wanted_by=capability, stage=hook.hook_name, path=hook.path, args=args)


def _plan_gpus(inventory: Inventory, by_kind: Mapping[str, Spec], files: DriverFiles) -> Iterator[ShimDevice]:
    spec = by_kind.get(name_own_kind(files.vendor))
    edits = {each.name: plan_entries(each.container_edits) for each in spec.devices} if spec is not None else {}
    for gpu in inventory.gpus:
        if gpu.mig_enabled:
            yield from _plan_parent(gpu, files)
        for mig in gpu.mig_devices or (None,):
            uuid = gpu.uuid if mig is None else mig.uuid
            if uuid in edits:
                yield _name_gpu(gpu, mig, edits[uuid])


def _plan_parent(gpu: Gpu, files: DriverFiles) -> Iterator[ShimDevice]:
    nodes = plan_node_edits((files.vendor.find_node(gpu.minor),) if gpu.minor is not None else (), files)
    if nodes.device_nodes:
        yield _name_device("parent", gpu, (render_index(gpu), gpu.uuid), plan_entries(nodes))


def _name_gpu(gpu: Gpu, mig: MigDevice | None, edits: ShimEdits) -> ShimDevice:
    if mig is not None:
        return _name_device("gpu", gpu, list_mig_names(gpu, mig), edits, is_part=True)
    return _name_device("gpu", gpu, (render_index(gpu), gpu.uuid), edits)


def _name_device(kind: str, gpu: Gpu, names: tuple[str, ...], edits: ShimEdits, *, is_part: bool = False) -> ShimDevice:
    capability = gpu.compute_capability
    return ShimDevice(
        kind="parent" if kind == "parent" else "gpu",
        names=names,
        legacy_names=() if is_part else _list_bus_ids(gpu.pci.address),
        edits=(edits,),
        arch=f"{capability[0]}.{capability[1]}" if capability is not None else "",
        brand=REQUIRED_BRANDS.get(gpu.brand, "").lower(),
    )


def _list_bus_ids(address: str) -> tuple[str, ...]:
    """`0000:07:00.0` as the kernel has it, as the driver has it, and without its domain where that is 0."""
    domain, _, place = address.partition(":")
    return (address, f"{domain:0>8}:{place}", *((place,) if not domain.strip("0") else ()))


def _plan_channels(by_kind: Mapping[str, Spec]) -> Iterator[ShimDevice]:
    spec = by_kind.get(CHANNEL_KIND)
    for device in spec.devices if spec is not None else ():
        if device.name != ALL:
            yield ShimDevice(kind="imex", names=(device.name,), edits=(plan_entries(device.container_edits),))


def _plan_extras(by_kind: Mapping[str, Spec], files: DriverFiles) -> Iterator[ShimDevice]:
    own = by_kind.get(name_own_kind(files.vendor))
    if own is not None:
        yield ShimDevice(kind="extra", names=(_COMMON,), edits=_plan_common(own))
    for name, kind in _EXTRA_KINDS.items():
        for device in by_kind[kind].devices if kind in by_kind else ():
            yield ShimDevice(kind="extra", names=(name,), edits=(plan_entries(device.container_edits),))
    for name, right in _RIGHTS.items():
        minor = files.capability_minors.get(right)
        edits = plan_node_edits((CAPABILITY_NODE.format(minor=minor),), files)
        if edits.device_nodes:
            yield ShimDevice(kind="extra", names=(name,), edits=(plan_entries(edits),))


def _plan_common(spec: Spec) -> tuple[ShimEdits, ...]:
    """The common edits of a kind, with mounts apart, which are most of the edits and the same for several kinds."""
    entries = plan_entries(spec.container_edits)
    mounts = tuple(each for each in entries if isinstance(each, ShimMount))
    rest = tuple(each for each in entries if not isinstance(each, ShimMount))
    return tuple(filter(None, (mounts, rest)))


def plan_qualified(spec: Spec) -> Iterator[ShimDevice]:
    """The devices of a specification under their CDI names."""
    common = _plan_common(spec)
    for device in spec.devices:
        edits = (plan_entries(device.container_edits), *common)
        yield ShimDevice(kind="cdi", names=(qualify(spec.kind, device.name),), edits=edits)
