"""The kubelet's list of devices for a resource.

Owns the health shown for each device.
A device missing from the node stays in the list, unhealthy, while a container holds it: the kubelet would otherwise
show the pod a healthy device that is gone.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport, Verdict
from nodeagent.model.ids import DeviceId, GpuUuid
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.plugin import AdvertisedDevice
from nodeagent.model.runtime import CdiState
from nodeagent.rules.cdi_names import OWN_KIND
from nodeagent.rules.mps.daemons import explain_daemon
from nodeagent.rules.offer.devices import PluginDevice, Resource

TRIAL: Final = "a single pod is to prove its GPU first, after the brake"


class View(NamedTuple):
    """The states behind the fitness of devices."""

    inventory: Inventory
    health: HealthReport | None
    """`None` where the node's health is not judged."""
    blocked: str = ""
    """Why no device at all may be handed out; empty when devices may."""
    named: frozenset[str] | None = None
    """Devices that a container runtime can resolve by name; `None` without names, or before the names are known."""
    closed: Mapping[GpuUuid, str] = MappingProxyType({})
    """GPUs not given whole, or closed to new pods, and why."""
    cordoned: Mapping[GpuUuid, str] = MappingProxyType({})
    """GPUs kept from new pods by a cordon, and by whom; such a GPU stays in the list, unhealthy."""
    trials: frozenset[GpuUuid] = frozenset()
    """GPUs of which a single device may be taken, to prove the GPU."""
    draining: frozenset[GpuUuid] = frozenset()
    """Closed GPUs that wait for their holders to go, by the component for allocation modes."""
    mig: MigState | None = None
    """The GPUs whose partitions are changing; `None` where partitions are not managed."""
    mps: MpsState | None = None
    """The daemons for replicas shared by MPS; `None` where daemons are not managed."""


def explain_unfitness(device: PluginDevice, view: View) -> str:
    """Why a device must not be handed out now; empty for a fit device."""
    if device.withheld or view.blocked:
        return device.withheld or view.blocked
    gone = (
        explain_loss(device.uuid, view)
        or view.cordoned.get(device.gpu, "")
        or _explain_trial(device, view)
        or _explain_cutting(device, view)
        or explain_daemon(device.gpu, view.mps, by_mps=device.by_mps)
        or _explain_namelessness(device.uuid, view)
    )
    if gone or view.health is None:
        return gone
    health = view.health.find_device(device.uuid)
    if health is None:
        return "its health is not known yet"
    if health.verdict in (Verdict.HEALTHY, Verdict.SUSPECT):
        return ""
    return health.reason or f"its health is {health.verdict}"


def find_named(state: CdiState | None, settings: Settings, kind: str = OWN_KIND) -> frozenset[str] | None:
    """The devices of the specification of this CDI kind; `None` where containers are given devices otherwise."""
    uses_cdi = any(strategy.startswith("cdi-") for strategy in settings.device_plugin.device_list_strategy)
    if state is None or not uses_cdi or not settings.cdi.enabled:
        return None
    return frozenset(name for file in state.files if file.kind == kind for name in file.devices)


def _explain_trial(device: PluginDevice, view: View) -> str:
    """Why a MIG device waits for the proof of its GPU; the first one is the one to be tried."""
    if device.gpu not in view.trials or device.uuid == device.gpu:
        return ""
    gpu = view.inventory.find_gpu(device.uuid)
    is_first = gpu is not None and gpu.mig_devices[0].uuid == device.uuid
    return "" if is_first else TRIAL


def _explain_cutting(device: PluginDevice, view: View) -> str:
    return view.mig.explain_hidden(device.gpu, device.uuid) if view.mig is not None else ""


def _explain_namelessness(uuid: str, view: View) -> str:
    if view.named is None or uuid in view.named:
        return ""
    gpu = view.inventory.find_gpu(uuid)
    if gpu is not None and gpu.uuid == uuid and gpu.mig_enabled:
        if not gpu.mig_devices:
            return "MIG is on and it has no MIG device: create some, or switch MIG off"
        return (
            "it is cut into MIG devices, and containers get those one by one: set `device_plugin.mig_strategy` to"
            " single or mixed, or switch MIG off"
        )
    return "no CDI specification names it (yet)"


def explain_loss(uuid: str, view: View) -> str:
    """Why a container must not start again on its GPU or MIG device; empty when it may.

    The rule is weaker than for handing a device out: a device not yet judged, or offered no more, may still be used by
    its holders.
    """
    gpu = view.inventory.find_gpu(uuid)
    if gpu is None:
        return "it is not on this node any more"
    if gpu.lost:
        return f"GPU {gpu.uuid} is lost: {gpu.lost}"
    health = view.health.find_device(uuid) if view.health is not None else None
    if health is not None and health.verdict is Verdict.UNHEALTHY:
        return health.reason or "its health is unhealthy"
    return ""


def plan_list(resource: Resource, view: View, held: Iterable[DeviceId] = ()) -> tuple[AdvertisedDevice, ...]:
    """The whole list: every device in index order, then held devices that are gone."""
    distinct = {device.uuid: device for device in resource.devices}
    fitness = {uuid: not explain_unfitness(device, view) for uuid, device in distinct.items()}
    known = {device.id for device in resource.devices}
    spared = _find_spared(resource, view, frozenset(held)) if view.trials else frozenset()
    return (
        *(
            AdvertisedDevice(
                id=device.id,
                healthy=fitness[device.uuid] and device.id not in spared,
                numa_node=device.numa_node,
            )
            for device in resource.devices
        ),
        *(AdvertisedDevice(id=name, healthy=False) for name in sorted(set(held) - known)),
    )


def _find_spared(resource: Resource, view: View, held: frozenset[DeviceId]) -> frozenset[DeviceId]:
    """The free replicas of GPUs to be proved, but for one of each."""
    free = [device for device in resource.devices if device.gpu in view.trials and device.id not in held]
    ones = {device.uuid: device.id for device in reversed(free)}
    return frozenset(device.id for device in free if ones[device.uuid] != device.id)
