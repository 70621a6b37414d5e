"""How GPUs, MIG devices and the places of MIG devices are called in slices, and back.

Owns the names, which are those of NVIDIA's driver: `gpu-<minor>`, `gpu-<minor>-mig-<profile>-<profile id>-<start>`. An
allocation carries nothing else, so a name is made of what stays over restarts and reboots, and is found again as long
as the GPU is there.
Refuses to say who may have a device: that is the door's matter, and health's.
"""

import re
from collections.abc import Container, Iterator
from typing import Final

from nodeagent.model.gpu import Gpu, Inventory, MigDevice, MigProfile
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value
from nodeagent.rules.mig.partitions import assume_places, find_profile, read_partitions
from nodeagent.rules.mig.profiles import ProfileUnreadable, parse_profile

_FOREIGN: Final = re.compile(r"[^a-z0-9-]")
_UNKNOWN_PROFILE: Final = "x"
_AMPERE: Final = 8
"""Major compute capability of the boards that take up and leave MIG mode with a reset only."""


class MigPlace(Value, frozen=True):
    """Where an instance of a profile lies, or could."""

    profile: MigProfile
    start: int
    """In memory slots."""


class NamedDevice(Value, frozen=True):
    """One device of a slice, and what it is."""

    name: str
    gpu: Gpu
    mig: MigDevice | None = None
    """The instance that exists, where it is one of an instance."""
    place: MigPlace | None = None
    """Of an instance, there or to be made; `None` for a GPU, and where the driver does not tell places."""

    @property
    def is_gpu(self) -> bool:
        """Whether it is the GPU itself and no part of it."""
        return self.mig is None and self.place is None


def name_gpu(gpu: Gpu) -> str:
    """By the minor number of its device node; by its slot where there is none."""
    return f"gpu-{gpu.minor}" if gpu.minor is not None else f"gpu-{_clean(gpu.pci.address)}"


def name_place(gpu: Gpu, place: MigPlace) -> str:
    """What a whole instance at this place is called, whether it exists or not."""
    return _name_instance(gpu, place.profile.name, str(place.profile.profile_id), str(place.start))


def name_mig(gpu: Gpu, mig: MigDevice) -> str:
    """As its place is called; what does not fill its instance, or lies nowhere known, has the ids besides."""
    place = _find_place(gpu, mig)
    if place is not None and _is_whole(mig):
        return name_place(gpu, place)
    profile = None if gpu.mig is None else find_profile(mig.profile, gpu.mig.profiles)
    number = _UNKNOWN_PROFILE if profile is None else str(profile.profile_id)
    start = f"i{mig.gpu_instance_id}" if mig.placement_start is None else str(mig.placement_start)
    part = "" if _is_whole(mig) else f"-c{mig.compute_instance_id}"
    return _name_instance(gpu, mig.profile, number, start + part)


def _name_instance(gpu: Gpu, profile: str, number: str, start: str) -> str:
    return f"{name_gpu(gpu)}-mig-{_clean(profile.lower().replace('.', ''))}-{number}-{start}"


def _clean(text: str) -> str:
    return _FOREIGN.sub("-", text)


def _is_whole(mig: MigDevice) -> bool:
    try:
        return parse_profile(mig.profile).is_whole
    except ProfileUnreadable:
        return True


def _find_place(gpu: Gpu, mig: MigDevice) -> MigPlace | None:
    profile = None if gpu.mig is None else find_profile(mig.profile, gpu.mig.profiles)
    if profile is None or mig.placement_start is None:
        return None
    return MigPlace(profile=profile, start=mig.placement_start)


def list_places(gpu: Gpu) -> tuple[MigPlace, ...]:
    """Everywhere that an instance could lie, profile by profile; none on a GPU that cannot be cut while claims come.

    A GPU that takes up MIG mode only with a reset tells no places before it has.
    """
    if gpu.mig is None or (_needs_reset(gpu) and not gpu.mig_enabled):
        return ()
    profiles = assume_places(read_partitions(gpu)).profiles
    return tuple(MigPlace(profile=one, start=start) for one in profiles for start in one.placements)


def _needs_reset(gpu: Gpu) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability[0] <= _AMPERE


def list_devices(inventory: Inventory, gpus: Container[GpuUuid], *, on_demand: bool) -> tuple[NamedDevice, ...]:
    """What these GPUs are offered as, in index order: themselves, what they are cut into, or could be on demand.

    A GPU in MIG mode is no whole device, but for one that leaves that mode when somebody asks for it whole.
    """
    return tuple(
        device
        for gpu in inventory.gpus
        if gpu.uuid in gpus
        for device in (_list_on_demand(gpu) if on_demand and list_places(gpu) else _list_present(gpu))
    )


def _list_present(gpu: Gpu) -> Iterator[NamedDevice]:
    if not gpu.mig_enabled:
        yield NamedDevice(name=name_gpu(gpu), gpu=gpu)
    for mig in gpu.mig_devices:
        yield NamedDevice(name=name_mig(gpu, mig), gpu=gpu, mig=mig, place=_find_place(gpu, mig))


def _list_on_demand(gpu: Gpu) -> Iterator[NamedDevice]:
    if not (gpu.mig_enabled and _needs_reset(gpu)):
        yield NamedDevice(name=name_gpu(gpu), gpu=gpu)
    there = {name_mig(gpu, mig): mig for mig in gpu.mig_devices}
    for place in list_places(gpu):
        name = name_place(gpu, place)
        yield NamedDevice(name=name, gpu=gpu, mig=there.get(name), place=place)


def find_device(inventory: Inventory, name: str) -> NamedDevice | None:
    """The device that an allocation names; `None` where this node has none of that name, and could have none."""
    for gpu in inventory.gpus:
        own = name_gpu(gpu)
        if name == own:
            return NamedDevice(name=name, gpu=gpu)
        if name.startswith(f"{own}-mig-"):
            return next((one for one in (*_list_present(gpu), *_list_on_demand(gpu)) if one.name == name), None)
    return None
