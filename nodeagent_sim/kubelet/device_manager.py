"""State and decisions of the kubelet's device manager, without any wire. Pure state.

Faithful to Kubernetes 1.36 with the topology manager's policy `none`: device choice, reuse of init containers' devices,
refusal texts, the grace period of a lost plugin, and release of a dead pod's devices only at the next admission.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Final, NamedTuple

from nodeagent_sim.kubelet.checkpoint import NO_NUMA_NODE, Checkpoint, PodDevices

GRACE_SECONDS: Final = 300.0


class DeviceRefused(Exception):
    """Why devices cannot be given, in the kubelet's words."""


class Device(NamedTuple):
    """One line of a plugin's list."""

    id: str
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


class Offer(NamedTuple):
    """Capacity and allocatable devices of a resource on the node."""

    capacity: int
    allocatable: int


class Choice(NamedTuple):
    """A choice to be made; the plugin may be asked for a preference."""

    resource: str
    taken: tuple[str, ...]
    """Devices chosen already: the reusable devices of the pod's init containers."""
    free: frozenset[str]
    size: int

    @property
    def open(self) -> int:
        """The number of devices still to be chosen."""
        return self.size - len(self.taken)


class DeviceManager:
    """Resources, devices, and holders of devices."""

    def __init__(self, random: Random, now: Callable[[], float]) -> None:
        self._random, self._now = random, now
        self._devices: dict[str, dict[str, Device]] = {}
        self._stopped_at: dict[str, float | None] = {}
        self._allocated: dict[str, set[str]] = {}
        self._entries: dict[tuple[str, str, str], PodDevices] = {}

    # Plugins.

    def register(self, resource: str) -> None:
        """A plugin serves this resource (again); a list of devices comes later."""
        self._stopped_at[resource] = None

    def receive_list(self, resource: str, devices: Iterable[Device]) -> None:
        """A plugin's list replaces the previous list."""
        self._devices[resource] = {device.id: device for device in devices}

    def disconnect(self, resource: str) -> None:
        """The plugin's stream has ended: all its devices are unhealthy, until the plugin is back or forgotten."""
        if resource in self._stopped_at:
            known = self._devices.get(resource, {})
            self._devices[resource] = {key: device._replace(healthy=False) for key, device in known.items()}
            self._stopped_at[resource] = self._now()

    def offers(self) -> dict[str, Offer]:
        """Capacity and allocatable as in the node's status; a plugin gone beyond the grace period counts as zero."""
        for resource in self._expired():
            del self._devices[resource], self._stopped_at[resource]
        return {
            resource: Offer(len(devices), len(self._healthy(resource))) for resource, devices in self._devices.items()
        }

    def _expired(self) -> list[str]:
        stopped = {resource: at for resource, at in self._stopped_at.items() if at is not None}
        return [
            resource for resource in self._devices if self._now() - stopped.get(resource, self._now()) > GRACE_SECONDS
        ]

    def _healthy(self, resource: str) -> frozenset[str]:
        return frozenset(device.id for device in self._devices.get(resource, {}).values() if device.healthy)

    # Admission.

    def is_device_resource(self, resource: str) -> bool:
        """Whether a plugin ever registered the resource; a pod starts without other resources."""
        return resource in self._devices or resource in self._allocated

    def held(self, pod_uid: str, container: str, resource: str) -> PodDevices | None:
        """The container's devices of a resource."""
        return self._entries.get((pod_uid, container, resource))

    def begin(self, pod_uid: str, container: str, resource: str, size: int, reusable: Collection[str]) -> Choice | None:
        """Prepare a choice; `None` for a container that has its devices already.

        Raises:
            DeviceRefused: Too few devices, or unhealthy devices.
        """
        entry = self.held(pod_uid, container, resource)
        held = entry.ids if entry else frozenset()
        self._judge(resource, held)
        if held:
            if len(held) != size:
                raise DeviceRefused(
                    f'pod "{pod_uid}" container "{container}" changed request for resource "{resource}"'
                    f" from {len(held)} to {size}"
                )
            return None
        taken = tuple(sorted(reusable)[:size])
        free = self._healthy(resource) - self._allocated.get(resource, set())
        if len(free) < size - len(taken):
            raise DeviceRefused(
                f"requested number of devices unavailable for {resource}."
                f" Requested: {size - len(taken)}, Available: {len(free)}"
            )
        return Choice(resource, taken, free, size)

    def _judge(self, resource: str, held: frozenset[str]) -> None:
        if resource not in self._devices:
            raise DeviceRefused(f"cannot allocate unregistered device {resource}")
        healthy = self._healthy(resource)
        if not healthy:
            raise DeviceRefused(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not held <= healthy:
            raise DeviceRefused(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )

    def choose(self, choice: Choice, preferred: Iterable[str]) -> tuple[str, ...]:
        """Choose free devices, preferred devices first, then at random; the devices are taken from here on."""
        # From too long a preference the kubelet takes any devices, in no order.
        order = sorted(choice.free.intersection(preferred))
        self._random.shuffle(order)
        rest = sorted(choice.free.difference(order))
        self._random.shuffle(rest)
        chosen = (*choice.taken, *[*order, *rest][: choice.open])
        self._allocated.setdefault(choice.resource, set()).update(chosen)
        return chosen

    def commit(self, pod_uid: str, container: str, resource: str, ids: Collection[str], answer: bytes) -> None:
        """Remember the holder of the devices, after the plugin's answer."""
        known = self._devices.get(resource, {})
        by_node: dict[int, tuple[str, ...]] = {}
        for device_id in sorted(ids):
            device = known.get(device_id)
            for node in (device.numa_nodes if device else ()) or (NO_NUMA_NODE,):
                by_node[node] = (*by_node.get(node, ()), device_id)
        self._entries[pod_uid, container, resource] = PodDevices(
            pod_uid=pod_uid, container=container, resource=resource, devices=by_node, answer=answer
        )

    def forget_undecided(self) -> None:
        """After a failed admission: only committed devices are taken."""
        self._allocated = {}
        for entry in self._entries.values():
            self._allocated.setdefault(entry.resource, set()).update(entry.ids)

    def release_all_but(self, active_uids: Collection[str]) -> None:
        """Before each admission: free the devices of pods that are gone."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.pod_uid in active_uids}
        self.forget_undecided()

    # Views for the other parts of the stand-in.

    def entries(self) -> tuple[PodDevices, ...]:
        """All holders with their devices."""
        return tuple(self._entries.values())

    def devices(self) -> Mapping[str, Mapping[str, Device]]:
        """All devices by resource and id."""
        return self._devices

    def checkpoint(self) -> Checkpoint:
        """The state that survives a restart."""
        registered = {resource: tuple(sorted(self._healthy(resource))) for resource in self._devices}
        return Checkpoint(entries=self.entries(), registered=registered)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Start from a checkpoint: holders are known, resources are registered without devices."""
        self._devices = {resource: {} for resource in checkpoint.registered}
        self._stopped_at = dict.fromkeys(checkpoint.registered, self._now())
        self._entries = {(entry.pod_uid, entry.container, entry.resource): entry for entry in checkpoint.entries}
        self.forget_undecided()
