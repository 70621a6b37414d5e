"""Which GPUs a scheduler chose for a container, as it wrote so on the pod.

Owns the spelling of the annotations.
A choice that cannot be read, or that names what this node does not have, is no choice: it is told, never fatal.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.values import Value
from nodeagent.rules.fractions.profiles import CoresProfile, Profile, SharesProfile

_LONGEST: Final = 65536
"""Characters of an annotation that are looked at; no choice of a real scheduler comes near."""


class Wish(Value, frozen=True):
    """A scheduler's choice for one container."""

    gpus: tuple[GpuUuid, ...] = ()
    """None where it made none, or none that can be read."""
    problem: str = ""
    """Why what it wrote means nothing here; names the annotation."""


def read_wish(
    profile: Profile, annotations: Mapping[str, str], gpus: Sequence[Gpu], *, container: int, init_containers: int
) -> Wish:
    """What the scheduler chose for one container.

    Args:
        profile: by which names.
        annotations: the pod's.
        gpus: this node's.
        container: its number among the pod's containers, init containers first.
        init_containers: how many of those there are.
    """
    if isinstance(profile, CoresProfile):
        return _read_predicate(profile, annotations, gpus, container - init_containers)
    return _read_allocated(profile, annotations, gpus, container)


def _read_predicate(profile: CoresProfile, annotations: Mapping[str, str], gpus: Sequence[Gpu], container: int) -> Wish:
    """`0,1` in the annotation of the container's number; init containers have none."""
    key = f"{profile.predicate}{container}"
    text = annotations.get(key, "").strip()
    if container < 0 or not text:
        return Wish()
    return _find(key, [part.strip() for part in text[:_LONGEST].split(",")], gpus)


def _read_allocated(
    profile: SharesProfile, annotations: Mapping[str, str], gpus: Sequence[Gpu], container: int
) -> Wish:
    """`uuid,NVIDIA,MiB,cores:` for each GPU, the containers parted by `;`."""
    key = next((key for key in profile.allocated if annotations.get(key, "").strip()), "")
    containers = annotations.get(key, "")[:_LONGEST].split(";")
    if container >= len(containers):
        return Wish()
    devices = [device for device in containers[container].split(":") if device.strip()]
    return _find(key, [device.partition(",")[0].strip() for device in devices], gpus) if devices else Wish()


def _find(key: str, names: Iterable[str], gpus: Sequence[Gpu]) -> Wish:
    """The GPUs of these indexes or UUIDs: all of them, or none and a reason."""
    known = {name: gpu.uuid for gpu in gpus for name in (gpu.uuid, str(gpu.index))}
    found: list[GpuUuid] = []
    for name in names:
        if name not in known:
            return Wish(problem=f"annotation {key} names GPU {name[:60]!r}, which this node does not have")
        found.append(known[name])
    if len(set(found)) < len(found):
        return Wish(problem=f"annotation {key} names a GPU twice")
    return Wish(gpus=tuple(found))
