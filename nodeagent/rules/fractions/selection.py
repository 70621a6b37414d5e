"""The GPUs that a pod wants or does not want, by model and by UUID, from the pod's annotations.

Owns the annotations' names, taken from HAMi, and their meaning: a piece of a model's name means the model, in
any case; an unwanted GPU stays unwanted even if wanted as well.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from nodeagent.model.ids import GpuUuid
from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.values import Value
from nodeagent.rules.placement.space import Space

WANTED_MODELS: Final = f"{DOMAIN}/use-gputype"
UNWANTED_MODELS: Final = f"{DOMAIN}/nouse-gputype"
WANTED_GPUS: Final = f"{DOMAIN}/use-gpuuuid"
UNWANTED_GPUS: Final = f"{DOMAIN}/nouse-gpuuuid"
_LONGEST: Final = 8192
"""Characters of an annotation to read: two hundred UUIDs."""


class Selection(Value, frozen=True):
    """The pod's conditions on GPUs; empty means no condition."""

    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    gpus: tuple[GpuUuid, ...] = ()
    not_gpus: tuple[GpuUuid, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether every GPU is as good as any."""
        return not (self.models or self.not_models or self.gpus or self.not_gpus)

    def refuse(self, gpu: GpuUuid, model: str) -> str:
        """Why the pod does not want the GPU, by the annotation that says so; empty for an acceptable GPU."""
        name = model.lower()
        if gpu in self.not_gpus:
            return f"the pod does not want it ({UNWANTED_GPUS})"
        if any(fraction in name for fraction in self.not_models):
            return f"the pod does not want its model ({UNWANTED_MODELS})"
        if self.gpus and gpu not in self.gpus:
            return f"the pod wants others ({WANTED_GPUS})"
        if self.models and not any(fraction in name for fraction in self.models):
            return f"the pod wants another model ({WANTED_MODELS})"
        return ""


def read_selection(annotations: Mapping[str, str]) -> Selection:
    """The pod's conditions; lists are separated by commas."""
    return Selection(
        models=tuple(each.lower() for each in _read_list(annotations, WANTED_MODELS)),
        not_models=tuple(each.lower() for each in _read_list(annotations, UNWANTED_MODELS)),
        gpus=tuple(GpuUuid(each) for each in _read_list(annotations, WANTED_GPUS)),
        not_gpus=tuple(GpuUuid(each) for each in _read_list(annotations, UNWANTED_GPUS)),
    )


def _read_list(annotations: Mapping[str, str], key: str) -> Iterable[str]:
    fractions = (fraction.strip() for fraction in annotations.get(key, "")[:_LONGEST].split(","))
    return dict.fromkeys(fraction for fraction in fractions if fraction)


def narrow(space: Space, models: Mapping[GpuUuid, str], selection: Selection) -> Space:
    """The account for a pod with the given conditions: an unwanted GPU is withheld, with the reason."""
    if selection.is_empty:
        return space
    return replace(
        space,
        rooms=tuple(
            room
            if room.withheld or not (reason := selection.refuse(room.gpu, models.get(room.gpu, "")))
            else replace(room, withheld=reason)
            for room in space.rooms
        ),
    )
