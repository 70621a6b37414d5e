"""The values behind each resource's answers, planned again only after a change of their sources, and the answers.

An answer to Allocate has everything that a container needs in order to use its devices.
Owns the strategies of the vendor's device plugin, alone and combined, and the refusal of invalid requests.
Refuses to read anything: the node's facts were read beforehand, so that an answer takes microseconds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from nodeagent.components.deviceplugin.advertise import View
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.errors import DeviceUnknown, RequestInvalid
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.mps import MpsAccess
from nodeagent.model.nvidia import ANNOTATION_INFIX, CAPABILITY_NODE, EXTRA_VARIABLES, IMEX_CHANNELS, IMEX_VARIABLE
from nodeagent.model.plugin import ContainerAnswer, ContainerDevice, ContainerMount, HandoutFacts
from nodeagent.model.shim_names import REQUESTS
from nodeagent.rules.cdi_names import ALL, CHANNEL_KIND, EXTRA_KINDS, name_own_kind, qualify
from nodeagent.rules.ids import is_replica, parse_index
from nodeagent.rules.mps.access import plan_replica_access
from nodeagent.rules.offer.devices import PluginDevice, Resource, ResourcePlan
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.topology import plan_topology


def select_devices(
    resource: Resource, known: Mapping[DeviceId, PluginDevice], names: Sequence[DeviceId]
) -> tuple[PluginDevice, ...]:
    """The devices asked for, out of the known devices of the resource.

    Raises:
        DeviceUnknown: A device is not of the resource.
        RequestInvalid: No device, too many, or a device twice.
    """
    for name in names:
        if name not in known:
            raise DeviceUnknown(resource.name, name)
    if not names:
        raise RequestInvalid(resource.name, "no device is asked for")
    if len(set(names)) < len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise RequestInvalid(resource.name, f"device is asked for twice: {doubled}")
    if resource.one_share_each and len(names) > 1 and any(is_replica(name) for name in names):
        raise RequestInvalid(resource.name, f"maximum request size for shared resources is 1; found {len(names)}")
    return tuple(known[name] for name in names)


def plan_answer(
    devices: Sequence[PluginDevice],
    settings: DevicePluginSettings,
    facts: HandoutFacts,
    annotation_token: str,
    mps: MpsAccess | None = None,
) -> ContainerAnswer:
    """The answer for a container; the token makes its annotation's key unlike any other container's."""
    names = _names(devices, settings)
    strategies = settings.device_list_strategy
    environment: dict[str, str] = {}
    mounts: tuple[ContainerMount, ...] = ()
    qualified = _qualified_names(names, settings, facts)
    if "envvar" in strategies:
        environment[facts.vendor.visible_devices] = ",".join(names)
        if facts.imex_channels:
            environment[IMEX_VARIABLE] = ",".join(map(str, facts.imex_channels))
    if "volume-mounts" in strategies:
        environment[facts.vendor.visible_devices] = REQUESTS
        mounts = tuple(_plan_mounts(names, facts.imex_channels))
    environment |= {
        variable: "enabled"
        for variable, wanted in (
            (EXTRA_VARIABLES["gdrcopy"], settings.gdrcopy),
            (EXTRA_VARIABLES["gds"], settings.gds),
            (EXTRA_VARIABLES["mofed"], settings.mofed),
        )
        if wanted
    }
    annotations = {}
    if "cdi-annotations" in strategies:
        annotations[f"{settings.cdi_annotation_prefix}{ANNOTATION_INFIX}{annotation_token}"] = ",".join(qualified)
    specs: tuple[ContainerDevice, ...] = ()
    if settings.pass_device_specs and {"envvar", "volume-mounts"} & set(strategies):
        specs = tuple(_spec(path, facts.dev_root) for path in dict.fromkeys(_node_paths(devices, facts)))
    if mps is not None:
        environment |= mps.environment
        mounts = (*mps.mounts, *mounts)
    return ContainerAnswer(
        environment=environment,
        mounts=mounts,
        devices=specs,
        annotations=annotations,
        cdi_devices=qualified if "cdi-cri" in strategies else (),
    )


def find_missing_channels(settings: DevicePluginSettings, facts: HandoutFacts) -> str:
    """Why no device may be handed out: a required channel is missing; empty when all is well."""
    missing = [channel for channel in settings.imex_channel_ids if channel not in facts.imex_channels]
    if not missing or not settings.imex_required:
        return ""
    return f"IMEX channel {missing[0]} is required and {IMEX_CHANNELS}/channel{missing[0]} does not exist: create it"


def _names(devices: Iterable[PluginDevice], settings: DevicePluginSettings) -> tuple[str, ...]:
    """The devices' names in containers, each once, however many replicas were given."""
    if settings.device_id_strategy == "uuid":
        return tuple(dict.fromkeys(str(device.uuid) for device in devices))
    indexes = {device.index for device in devices}
    return tuple(sorted(indexes, key=parse_index))


def _qualified_names(names: Iterable[str], settings: DevicePluginSettings, facts: HandoutFacts) -> tuple[str, ...]:
    extras = (("gdrcopy", settings.gdrcopy), ("gds", settings.gds), ("mofed", settings.mofed))
    return (
        *(qualify(name_own_kind(facts.vendor), name) for name in names),
        *(qualify(CHANNEL_KIND, str(channel)) for channel in facts.imex_channels),
        *(qualify(EXTRA_KINDS[extra], ALL) for extra, wanted in extras if wanted and extra in facts.cdi_extras),
    )


def _plan_mounts(names: Iterable[str], channels: Iterable[int]) -> Iterable[ContainerMount]:
    """Mounts of /dev/null, whose names are read by the container runtime's hook."""
    for name in (*names, *(f"imex/{channel}" for channel in channels)):
        yield ContainerMount(container_path=f"{REQUESTS}/{name}", host_path="/dev/null", read_only=False)


def _node_paths(devices: Iterable[PluginDevice], facts: HandoutFacts) -> Iterable[str]:
    yield from facts.control_nodes
    for device in devices:
        if device.minor is None:
            continue
        yield facts.vendor.find_node(device.minor)
        if device.gpu_instance_id is not None:
            nodes = {
                (capability.gpu_minor, capability.gpu_instance_id, capability.compute_instance_id): capability.node
                for capability in facts.capabilities
            }
            for instance in (None, device.compute_instance_id):
                node = nodes.get((device.minor, device.gpu_instance_id, instance))
                if node is not None:
                    yield CAPABILITY_NODE.format(minor=node)
    for channel in facts.imex_channels:
        yield f"{IMEX_CHANNELS}/channel{channel}"


def _spec(path: str, dev_root: str) -> ContainerDevice:
    return ContainerDevice(container_path=path, host_path=dev_root.rstrip("/") + path, permissions="rw")


class ResourceOffer(NamedTuple):
    """The values behind a resource's answers; replaced whole."""

    resource: Resource
    known: Mapping[DeviceId, PluginDevice]
    preference: Preference
    view: View
    settings: DevicePluginSettings
    facts: HandoutFacts
    all_settings: Settings = Settings()

    def plan_mps(self, devices: Collection[PluginDevice]) -> MpsAccess | None:
        """A container's access to the MPS daemon of the given replicas; `None` without a daemon.

        Raises:
            RequestInvalid: The replicas cannot be used together.
        """
        return plan_replica_access(self.all_settings, self.resource.name, devices)


class OfferPlan(NamedTuple):
    """A plan of all resources, with the sources."""

    origin: tuple[object, ...]
    plan: ResourcePlan
    known: Mapping[ResourceName, Mapping[DeviceId, PluginDevice]]
    preferences: Mapping[ResourceName, Preference]

    def offer(self, name: ResourceName, view: View, settings: Settings, facts: HandoutFacts) -> ResourceOffer:
        """The offer of a resource; a resource offered no more has only the devices held by containers."""
        resource = self.plan.find(name) or Resource(name=name, devices=())
        preference = self.preferences.get(name) or Preference(resource, plan_topology(view.inventory), "packed")
        known = self.known.get(name, {})
        return ResourceOffer(resource, known, preference, view, settings.device_plugin, facts, settings)


def make_plan(
    kept: OfferPlan | None, inventory: Inventory, settings: Settings, closed: frozenset[GpuUuid]
) -> OfferPlan:
    """The plan for the inventory, settings and GPUs of other allocation modes; the kept plan for equal sources."""
    origin = (inventory, closed, settings.device_plugin, settings.sharing, settings.resources, settings.gpus)
    if kept is not None and kept.origin == origin:
        return kept
    plan = plan_resources(inventory, settings, closed)
    topology, policy = plan_topology(inventory), settings.device_plugin.shared_allocation_policy
    return OfferPlan(
        origin,
        plan,
        {resource.name: {device.id: device for device in resource.devices} for resource in plan.resources},
        {resource.name: Preference(resource, topology, policy) for resource in plan.resources},
    )


def find_held(table: AllocationTable) -> dict[ResourceName, tuple[DeviceId, ...]]:
    """By resource, the devices held by containers."""
    held: dict[ResourceName, tuple[DeviceId, ...]] = {}
    for allocation in table.allocations:
        held[allocation.resource] = held.get(allocation.resource, ()) + allocation.devices
    return held
