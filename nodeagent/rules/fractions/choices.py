"""The GPUs chosen by a scheduler for a container, in the pod's annotations.

Owns the spelling of the annotations, read and written.
An unreadable choice, or one of GPUs unknown to this node, is no choice: reported, never fatal.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import GpuFraction
from nodeagent.model.nvidia import VENDOR
from nodeagent.model.values import Value
from nodeagent.rules.fractions.profiles import MIB, CoresProfile, CountedProfile, Profile

_LONGEST: Final = 65536
"""Characters of an annotation to read; no choice of a real scheduler comes near."""
_NANOSECONDS: Final = 10**9


class NamedGpu(Protocol):
    """A GPU by index and UUID; of the inventory, or of a node elsewhere as published."""

    @property
    def index(self) -> int:
        """The GPU's number on the node."""
        ...

    @property
    def uuid(self) -> GpuUuid:
        """The GPU's name for life."""
        ...


class ContainerChoice(Value, frozen=True):
    """A scheduler's choice for one container."""

    gpus: tuple[GpuUuid, ...] = ()
    """Empty without a choice, or without a readable one."""
    problem: str = ""
    """Why the scheduler's text means nothing here; names the annotation."""


class ChosenFraction(Value, frozen=True):
    """The fraction of one GPU for one container."""

    index: int
    part: GpuFraction


class Choice(Value, frozen=True):
    """A scheduler's choice for a whole pod."""

    node: str
    time_nanoseconds: int
    """When the choice was made, by the wall clock."""
    parts: Mapping[int, tuple[ChosenFraction, ...]]
    """By the container's number among the pod's containers, init containers first."""
    containers: int
    """The number of containers, with init containers."""
    init_containers: int
    has_uuids: bool = True
    """Whether the GPUs' UUIDs are known; a node of the original publishes none."""


def read_scheduler_choice(
    profile: Profile, annotations: Mapping[str, str], gpus: Sequence[NamedGpu], *, container: int, init_containers: int
) -> ContainerChoice:
    """The scheduler's choice for one container.

    `container` is the container's number among the pod's containers, init containers first.
    """
    if isinstance(profile, CoresProfile):
        return _read_predicate(profile, annotations, gpus, container, init_containers)
    return _read_allocated(profile, annotations, gpus, container)


def _read_predicate(
    profile: CoresProfile,
    annotations: Mapping[str, str],
    gpus: Sequence[NamedGpu],
    container: int,
    init_containers: int,
) -> ContainerChoice:
    """`0,1` in the annotation of the container's number, or UUIDs in the stronger annotation for UUIDs."""
    for key in _name_predicates(profile, container, init_containers):
        text = annotations.get(key, "").strip()
        if text:
            return _find(key, [fraction.strip() for fraction in text[:_LONGEST].split(",")], gpus)
    return ContainerChoice()


def _name_predicates(profile: CoresProfile, container: int, init_containers: int) -> tuple[str, ...]:
    """The annotations of a container, the most trusted first; the original has none for init containers."""
    number = container - init_containers
    if number < 0:
        return (f"{profile.predicate_uuid}init-{container}",)
    return f"{profile.predicate_uuid}{number}", f"{profile.predicate}{number}"


def _read_allocated(
    profile: CountedProfile, annotations: Mapping[str, str], gpus: Sequence[NamedGpu], container: int
) -> ContainerChoice:
    """`uuid,NVIDIA,MiB,cores:` for each GPU, the containers separated by `;`."""
    key = next((key for key in profile.allocated if annotations.get(key, "").strip()), "")
    containers = annotations.get(key, "")[:_LONGEST].split(";")
    if container >= len(containers):
        return ContainerChoice()
    devices = [device for device in containers[container].split(":") if device.strip()]
    return _find(key, [device.partition(",")[0].strip() for device in devices], gpus) if devices else ContainerChoice()


def _find(key: str, names: Iterable[str], gpus: Sequence[NamedGpu]) -> ContainerChoice:
    """The GPUs with the given indexes or UUIDs: all of them, or a reason alone."""
    known = {name: gpu.uuid for gpu in gpus for name in (gpu.uuid, str(gpu.index))}
    found: list[GpuUuid] = []
    for name in names:
        if name not in known:
            return ContainerChoice(problem=f"annotation {key} names GPU {name[:60]!r}, which this node does not have")
        found.append(known[name])
    if len(set(found)) < len(found):
        return ContainerChoice(problem=f"annotation {key} names a GPU twice")
    return ContainerChoice(gpus=tuple(found))


def read_chosen_node(profile: Profile, annotations: Mapping[str, str]) -> str:
    """The node of a scheduler's choice; empty where unnamed."""
    key = profile.predicate_node if isinstance(profile, CoresProfile) else profile.chosen_node
    return annotations.get(key, "").strip()


def render_choice(profile: Profile, choice: Choice) -> dict[str, str]:
    """The annotations of a choice; `read_scheduler_choice` is the inverse."""
    if isinstance(profile, CoresProfile):
        return _render_predicate(profile, choice)
    return _render_allocated(profile, choice)


def render_correction(
    profile: Profile,
    annotations: Mapping[str, str],
    parts: Sequence[ChosenFraction],
    *,
    container: int,
    init_containers: int,
) -> dict[str, str]:
    """The annotations of a pod about a container with other GPUs than chosen.

    `container` is the container's number among the pod's containers, init containers first; the values for the other
    containers stay.
    """
    if isinstance(profile, CoresProfile):
        by_uuid, *by_index = _name_predicates(profile, container, init_containers)
        indexes = ",".join(str(chosen.index) for chosen in parts)
        return {by_uuid: ",".join(chosen.part.gpu for chosen in parts), **dict.fromkeys(by_index, indexes)}
    said = next((text for key in profile.allocated if (text := annotations.get(key, "").strip())), "")
    containers = said[:_LONGEST].removesuffix(";").split(";")
    containers += [""] * (container + 1 - len(containers))
    containers[container] = "".join(_render_device(chosen.part) for chosen in parts)
    return dict.fromkeys(profile.allocated, "".join(f"{each};" for each in containers))


def _render_predicate(profile: CoresProfile, choice: Choice) -> dict[str, str]:
    rendered = {
        profile.predicate_node: choice.node,
        profile.predicate_time: str(choice.time_nanoseconds),
        profile.assigned: "false",
    }
    for container, fractions in choice.parts.items():
        by_uuid, *by_index = _name_predicates(profile, container, choice.init_containers)
        if choice.has_uuids:
            rendered[by_uuid] = ",".join(chosen.part.gpu for chosen in fractions)
        for key in by_index:
            rendered[key] = ",".join(str(chosen.index) for chosen in fractions)
    return rendered


def _render_allocated(profile: CountedProfile, choice: Choice) -> dict[str, str]:
    text = "".join(
        "".join(_render_device(chosen.part) for chosen in choice.parts.get(container, ())) + ";"
        for container in range(choice.containers)
    )
    return {
        profile.chosen_node: choice.node,
        profile.chosen_time: str(choice.time_nanoseconds // _NANOSECONDS),
        **dict.fromkeys(profile.allocated, text),
    }


def _render_device(part: GpuFraction) -> str:
    return f"{part.gpu},{VENDOR.name},{part.memory_bytes // MIB},{part.cores}:"
