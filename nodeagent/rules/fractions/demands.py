"""A pod's request for fractions of GPUs, container by container.

Owns the list of requesting containers, and the stage of each: an init container is over before later containers start,
unless it is a sidecar, so that both may get the same fraction.

Judges whether a request is possible at all; whether there is room is another question.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.scheduling import SeenContainer, SeenPod
from nodeagent.model.values import Value
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile, Profile, find_class, name_profile
from nodeagent.rules.fractions.requests import read_counted, read_counts, read_quantity
from nodeagent.rules.placement.place import Demand

_ANY_SIZE: Final = 1 << 62
"""The assumed memory of a GPU as long as the GPU is not known."""


class Stage(StrEnum):
    """When a container runs."""

    INIT = "init"
    """Alone, but for the sidecars before it."""
    SIDECAR = "sidecar"
    """From its turn among the init containers to the pod's end."""
    MAIN = "main"


class ContainerDemand(Value, frozen=True):
    """The request of one container."""

    number: int
    """Among all containers of the pod, init containers first."""
    name: str
    stage: Stage
    demand: Demand


class PodDemand(Value, frozen=True):
    """The request of a pod."""

    profile: str
    """The word for the profile."""
    containers: tuple[ContainerDemand, ...]
    """The containers with a request, in order."""

    @property
    def device_class(self) -> str:
        """The class whose devices are asked for; empty for the driver's GPUs."""
        return find_class(self.profile)

    @property
    def is_exclusive(self) -> bool:
        """Whether the pod asks for whole GPUs only, without any need for enforcement."""
        return all(each.demand.is_exclusive for each in self.containers)


class Profiles(Value, frozen=True):
    """The names by which pods of the cluster ask for fractions; `None` for names with another meaning here."""

    cores: CoresProfile | None = None
    shares: CountedProfile | None = None
    classes: tuple[CoresProfile, ...] = ()
    """The names of divisible classes."""
    enforcement: str = "nodeagent.io/gpu-enforcement"
    """The annotation by which a pod chooses its enforcement."""

    @property
    def known(self) -> tuple[Profile, ...]:
        """The profiles in use here."""
        return tuple(profile for profile in (self.cores, self.shares, *self.classes) if profile is not None)

    def find(self, name: str) -> Profile | None:
        """The profile with the given word."""
        return next((profile for profile in self.known if name_profile(profile) == name), None)


def read_demand(profiles: Profiles, pod: SeenPod) -> PodDemand | None:
    """The request of a pod; `None` for a pod without a request for fractions.

    Raises:
        RequestInvalid: no GPU of any size could ever serve the request; names key and value, and the container.
    """
    found: list[ContainerDemand] = []
    used: dict[str, str] = {}
    for number, container, stage in _list_containers(pod):
        for profile in profiles.known:
            demand = _read_container(profile, container)
            if demand is not None:
                used.setdefault(name_profile(profile), container.name)
                found.append(ContainerDemand(number=number, name=container.name, stage=stage, demand=demand))
    if len(used) > 1:
        first, other = used.values()
        reason = f"containers {first} and {other} ask for parts of GPUs by different names, and no node goes by both"
        raise RequestInvalid(_name_resource(profiles.known), f"{reason}; use the names of one kind")
    if not found:
        return None
    return PodDemand(profile=next(iter(used)), containers=tuple(found))


def _list_containers(pod: SeenPod) -> Iterator[tuple[int, SeenContainer, Stage]]:
    for number, container in enumerate(pod.init_containers):
        yield number, container, Stage.SIDECAR if container.is_sidecar else Stage.INIT
    for number, container in enumerate(pod.containers, len(pod.init_containers)):
        yield number, container, Stage.MAIN


def _name_resource(profiles: Iterable[Profile]) -> str:
    names = (profile.core if isinstance(profile, CoresProfile) else profile.share for profile in profiles)
    return " and ".join(names)


def _read_container(profile: Profile, container: SeenContainer) -> Demand | None:
    try:
        if isinstance(profile, CoresProfile):
            return _read_cores(profile, container)
        return _read_share(profile, container)
    except RequestInvalid as error:
        raise RequestInvalid(error.resource, f"container {container.name}: {error.reason}") from error


def _read_cores(profile: CoresProfile, container: SeenContainer) -> Demand | None:
    cores = read_quantity(profile.core, container.limits) or 0
    blocks = read_quantity(profile.memory, container.limits) or 0
    return read_counts(profile, cores, blocks, _ANY_SIZE) if cores or blocks else None


def _read_share(profile: CountedProfile, container: SeenContainer) -> Demand | None:
    shares = read_quantity(profile.share, container.limits) or 0
    if shares:
        return read_counted(profile, shares, container.limits, _ANY_SIZE)
    for key in (profile.memory_mib, profile.memory_percent, profile.cores):
        if read_quantity(key, container.limits):
            raise RequestInvalid(key, f"{container.limits[key]} without {profile.share}; ask for 1 of that too")
    return None
