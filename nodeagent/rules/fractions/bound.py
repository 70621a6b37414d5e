"""Which parts of its GPUs the containers of a node have, as one annotation of the node object.

Owns its form, written by the node and read by the scheduler's extender. What a pod's author asked for and a scheduler
chose stands on the pod, and need not be what its containers have: a choice was not obeyed, or a person has set other
limits. A container that is named here has what stands here, whatever its pod says; one that is not has not started.
Refuses to be read in part, as the annotation beside it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, GpuPart
from nodeagent.rules.fractions.annotations import decode_annotation

BOUND_ANNOTATION: Final = "nvidia.com/gpu-fractions-bound"
FORM: Final = 1
LONGEST: Final = 65536
"""Characters: a quarter of what an object may have of annotations, and about eight hundred containers."""

BoundParts: TypeAlias = Mapping[str, Mapping[str, tuple[GpuPart, ...]]]
"""By the pod's uid and the container's name."""


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The annotation as it is written."""

    form: int
    pods: dict[str, dict[str, list[tuple[int, int, int]]]]


class RenderedBound(NamedTuple):
    """The annotation's value."""

    text: str
    left_out: int = 0
    """How many pods are not in it, since it would be too long; their annotations are believed."""


def render_bound(bindings: Iterable[Binding], inventory: Inventory) -> RenderedBound:
    """What the bindings of a node look like to schedulers; equal for equal ones, so that it need not be written again.

    A pod whose uid nobody has told yet is left out: it stands there as soon as somebody does.
    """
    indexes = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    pods: dict[str, dict[str, list[tuple[int, int, int]]]] = {}
    for binding in sorted(bindings, key=lambda each: (each.pod.uid, each.container, each.number)):
        parts = [(indexes[part.gpu], part.cores, part.memory_bytes) for part in binding.parts if part.gpu in indexes]
        if binding.pod.uid and parts:
            pods.setdefault(binding.pod.uid, {})[binding.container] = parts
    if not pods:
        return RenderedBound("")
    count = len(pods)
    while len(text := msgspec.json.encode(_Form(FORM, pods)).decode()) > LONGEST:
        # In proportion, so that it takes a few steps; at least one.
        for uid in list(pods)[len(pods) * LONGEST // (len(text) + 1) :] or list(pods)[-1:]:
            del pods[uid]
    return RenderedBound(text, count - len(pods))


def read_bound(text: str, gpus: Mapping[int, GpuUuid]) -> BoundParts:
    """The parts that the containers of a node have, without those of GPUs that the node does not have.

    Args:
        text: the annotation's value.
        gpus: the node's, by index.

    Raises:
        PublicationUnreadable: it is not whole, contradicts itself, or is of a form that this version does not know.
    """
    form = decode_annotation(BOUND_ANNOTATION, text, _Form, form=FORM, longest=LONGEST)
    return {uid: {name: _read_parts(parts, gpus) for name, parts in pod.items()} for uid, pod in form.pods.items()}


def _read_parts(parts: Iterable[tuple[int, int, int]], gpus: Mapping[int, GpuUuid]) -> tuple[GpuPart, ...]:
    parts = list(parts)
    if any(min(part) < 0 for part in parts):
        raise PublicationUnreadable(BOUND_ANNOTATION, "it has a number below zero")
    return tuple(
        GpuPart(gpu=gpus[index], cores=cores, memory_bytes=memory) for index, cores, memory in parts if index in gpus
    )
