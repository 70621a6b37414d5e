"""The places of a daemon's files, and the mounts and variables that make a container its client.

Owns the places, which are NVIDIA's device plugin's and DRA driver's as far as containers see them.
"""

from collections.abc import Collection
from typing import Final

from nodeagent.config.schema import Settings
from nodeagent.model.errors import RequestInvalid
from nodeagent.model.mps import PIPE_VARIABLE, SHARED_MEMORY, MpsAccess, MpsPlace
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.mps.daemons import name_replica_daemon
from nodeagent.rules.offer.devices import PluginDevice

_PRIVATE_PIPES: Final = "/tmp/nvidia-mps"  # noqa: S108 - where a client looks that is told nothing


def plan_place(settings: Settings, name: str) -> MpsPlace:
    """Where the files of a daemon lie."""
    has_own_memory = settings.mps.shared_memory == "own"
    return MpsPlace(root=settings.device_plugin.mps_root, name=name, has_own_memory=has_own_memory)


def plan_replica_access(settings: Settings, resource: str, devices: Collection[PluginDevice]) -> MpsAccess | None:
    """The access for a container with the given replicas; `None` for replicas not shared by MPS.

    Raises:
        RequestInvalid: the replicas have different daemons, and a process is the client of one.
    """
    shared = [device for device in devices if device.by_mps]
    if not shared:
        return None
    names = {name_replica_daemon(settings.mps.daemon_per, device.gpu, resource) for device in shared}
    if len(names) > 1:
        raise RequestInvalid(
            resource,
            f"shares of {len(names)} GPUs are asked for, and each GPU has an MPS daemon of its own:"
            " ask for shares of one, or set `mps.daemon_per` to resource",
        )
    return _plan_access(plan_place(settings, names.pop()), f"/mps/{resource}/pipe")


def plan_private_access(place: MpsPlace) -> MpsAccess:
    """The access of containers to one daemon alone, of a claim or of the fractions of a GPU."""
    return _plan_access(place, _PRIVATE_PIPES)


def _plan_access(place: MpsPlace, pipes: str) -> MpsAccess:
    return MpsAccess(
        environment={PIPE_VARIABLE: pipes},
        mounts=(
            ContainerMount(container_path=pipes, host_path=str(place.pipes), read_only=False),
            ContainerMount(container_path=SHARED_MEMORY, host_path=str(place.shared_memory), read_only=False),
        ),
    )
