"""The names of GPUs, MIG devices and places of MIG devices in resource slices, and back.

Owns the names, as in the vendor's DRA driver: `gpu-<minor>`, `gpu-<minor>-mig-<profile>-<profile id>-<start>`. An
allocation carries nothing else, so a name is made of values that outlive restarts and reboots, and is found again as
long as the GPU is there.

Refuses to say who may have a device: the matter of allocation mode and health.
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
    """A device of a slice."""

    name: str
    gpu: Gpu
    mig: MigDevice | None = None
    """The existing instance, for a device of an instance."""
    place: MigPlace | None = None
    """Of an instance, existing or possible; `None` for a GPU, and where the driver reports no places."""

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a whole GPU."""
        return self.mig is None and self.place is None


def name_gpu(gpu: Gpu) -> str:
    """The name by the minor number of the device node; by the PCI address where there is none."""
    return f"gpu-{gpu.minor}" if gpu.minor is not None else f"gpu-{_clean(gpu.pci.address)}"


def name_place(gpu: Gpu, place: MigPlace) -> str:
    """The name of a whole instance at the place, existing or not."""
    return _name_instance(gpu, place.profile.name, str(place.profile.profile_id), str(place.start))


def name_mig(gpu: Gpu, mig: MigDevice) -> str:
    """The name of the MIG device's place; with ids for a part of an instance, or for an unknown place."""
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
    """All possible places of instances, profile by profile; none on a GPU that cannot be cut while claims come.

    A GPU in need of a reset to take up MIG mode reports no places before.
    """
    if gpu.mig is None or (_needs_reset(gpu) and not gpu.mig_enabled):
        return ()
    profiles = assume_places(read_partitions(gpu)).profiles
    return tuple(MigPlace(profile=one, start=start) for one in profiles for start in one.placements)


def _needs_reset(gpu: Gpu) -> bool:
    return gpu.compute_capability is not None and gpu.compute_capability[0] <= _AMPERE


def list_devices(inventory: Inventory, gpus: Container[GpuUuid], *, on_demand: bool) -> tuple[NamedDevice, ...]:
    """The offered devices of the GPUs, in index order: whole GPUs, present MIG devices, or possible ones on demand.

    A GPU in MIG mode is no whole device, unless it can leave the mode for a claim of the whole GPU.
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
    """The device named by an allocation; `None` for a name that no device of the node has or could have."""
    for gpu in inventory.gpus:
        own = name_gpu(gpu)
        if name == own:
            return NamedDevice(name=name, gpu=gpu)
        if name.startswith(f"{own}-mig-"):
            return next((one for one in (*_list_present(gpu), *_list_on_demand(gpu)) if one.name == name), None)
    return None
