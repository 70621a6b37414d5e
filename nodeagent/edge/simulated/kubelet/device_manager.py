"""What the kubelet's device manager knows and decides, without any wire. Pure state.

Faithful to Kubernetes 1.36 with the topology manager's policy `none`: device choice, reuse of init containers'
devices, refusal texts, the grace period of a lost plugin, and release of a dead pod's devices only at the next
admission.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Final, NamedTuple

from nodeagent.edge.simulated.kubelet.checkpoint import NO_NUMA_NODE, Checkpoint, PodDevices

GRACE_SECONDS: Final = 300.0


class DeviceRefused(Exception):
    """Why devices cannot be given, in the kubelet's words."""


class Device(NamedTuple):
    """One line of a plugin's list."""

    id: str
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


class Offer(NamedTuple):
    """What the node says it has of a resource."""

    capacity: int
    allocatable: int


class Choice(NamedTuple):
    """A choice to be made; the plugin may be asked what it prefers."""

    resource: str
    taken: tuple[str, ...]
    """Already decided: the reusable devices of the pod's init containers."""
    free: frozenset[str]
    size: int

    @property
    def open(self) -> int:
        """How many devices are still to be chosen."""
        return self.size - len(self.taken)


class DeviceManager:
    """Resources, devices, and who holds them."""

    def __init__(self, random: Random, now: Callable[[], float]) -> None:
        self._random, self._now = random, now
        self._devices: dict[str, dict[str, Device]] = {}
        self._stopped_at: dict[str, float | None] = {}
        self._allocated: dict[str, set[str]] = {}
        self._entries: dict[tuple[str, str, str], PodDevices] = {}

    # Plugins.

    def register(self, resource: str) -> None:
        """A plugin serves this resource (again); its list comes later."""
        self._stopped_at[resource] = None

    def receive_list(self, resource: str, devices: Iterable[Device]) -> None:
        """A plugin's list replaces the one before."""
        self._devices[resource] = {device.id: device for device in devices}

    def disconnect(self, resource: str) -> None:
        """The plugin's stream has ended: everything it had is unhealthy, until it is back or forgotten."""
        if resource in self._stopped_at:
            known = self._devices.get(resource, {})
            self._devices[resource] = {key: device._replace(healthy=False) for key, device in known.items()}
            self._stopped_at[resource] = self._now()

    def is_stopped(self, resource: str) -> bool:
        """Whether no plugin serves the resource now."""
        return self._stopped_at.get(resource, 0.0) is not None

    def offers(self) -> dict[str, Offer]:
        """Capacity and allocatable as in the node's status; what is gone beyond the grace period goes to zero."""
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
        """Whether a plugin was ever heard of; other resources are not ours, and a pod starts without them."""
        return resource in self._devices or resource in self._allocated

    def held(self, pod_uid: str, container: str, resource: str) -> PodDevices | None:
        """What this container has been given of this resource."""
        return self._entries.get((pod_uid, container, resource))

    def begin(self, pod_uid: str, container: str, resource: str, size: int, reusable: Collection[str]) -> Choice | None:
        """Prepare a choice; `None` when the container has its devices already.

        Raises:
            DeviceRefused: there is nothing to choose from.
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
        """Decide: what the plugin prefers as far as it is free, then any; the devices are taken from here on."""
        # Of a preference for more than is wanted the kubelet takes any: it has no order there.
        order = sorted(choice.free.intersection(preferred))
        self._random.shuffle(order)
        rest = sorted(choice.free.difference(order))
        self._random.shuffle(rest)
        chosen = (*choice.taken, *[*order, *rest][: choice.open])
        self._allocated.setdefault(choice.resource, set()).update(chosen)
        return chosen

    def commit(self, pod_uid: str, container: str, resource: str, ids: Collection[str], answer: bytes) -> None:
        """The plugin has answered: remember who holds what."""
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
        """After a failed admission: only what is committed is taken."""
        self._allocated = {}
        for entry in self._entries.values():
            self._allocated.setdefault(entry.resource, set()).update(entry.ids)

    def release_all_but(self, active_uids: Collection[str]) -> None:
        """Before each admission: what pods that are gone have held is free."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry.pod_uid in active_uids}
        self.forget_undecided()

    # What others see.

    def entries(self) -> tuple[PodDevices, ...]:
        """Who holds what."""
        return tuple(self._entries.values())

    def devices(self) -> Mapping[str, Mapping[str, Device]]:
        """All devices by resource and id."""
        return self._devices

    def checkpoint(self) -> Checkpoint:
        """What would survive a restart."""
        registered = {resource: tuple(sorted(self._healthy(resource))) for resource in self._devices}
        return Checkpoint(entries=self.entries(), registered=registered)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Start from a checkpoint: who holds what is known, the resources are there with nothing in them."""
        self._devices = {resource: {} for resource in checkpoint.registered}
        self._stopped_at = dict.fromkeys(checkpoint.registered, self._now())
        self._entries = {(entry.pod_uid, entry.container, entry.resource): entry for entry in checkpoint.entries}
        self.forget_undecided()
