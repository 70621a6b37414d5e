"""The fractions held by the containers of a node, as one annotation of the node object.

Owns the annotation's form, written by the node and read by the scheduler's extender. The request of a pod's author and
the choice of a scheduler stand on the pod, and need not be the fractions held: a choice was not obeyed, or a person has
set other limits. A container named here holds the fractions given here, whatever its pod says; any other has not
started.
Refuses to be read in part, as the annotation beside it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.gpu import Inventory
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding, GpuFraction
from nodeagent.model.nvidia import DOMAIN
from nodeagent.rules.fractions.annotations import decode_annotation

BOUND_ANNOTATION: Final = f"{DOMAIN}/gpu-fractions-bound"
FORM: Final = 1
LONGEST: Final = 65536
"""Characters: a quarter of an object's limit for annotations, and about eight hundred containers."""

BoundFractions: TypeAlias = Mapping[str, Mapping[str, tuple[GpuFraction, ...]]]
"""By the pod's uid and the container's name."""


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The annotation as written."""

    form: int
    pods: dict[str, dict[str, list[tuple[int, int, int]]]]


class RenderedBound(NamedTuple):
    """The annotation's value."""

    text: str
    left_out: int = 0
    """The number of pods left out because the text would be too long; their own annotations are believed."""


def render_bound(bindings: Iterable[Binding], inventory: Inventory) -> RenderedBound:
    """The bindings of a node for schedulers to read; equal text for equal bindings saves a write.

    A pod without a known uid is left out until the uid is known.
    """
    indexes = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    pods: dict[str, dict[str, list[tuple[int, int, int]]]] = {}
    for binding in sorted(bindings, key=lambda each: (each.pod.uid, each.container, each.number)):
        fractions = [
            (indexes[fraction.gpu], fraction.cores, fraction.memory_bytes)
            for fraction in binding.parts
            if fraction.gpu in indexes
        ]
        if binding.pod.uid and fractions:
            pods.setdefault(binding.pod.uid, {})[binding.container] = fractions
    if not pods:
        return RenderedBound("")
    count = len(pods)
    while len(text := msgspec.json.encode(_Form(FORM, pods)).decode()) > LONGEST:
        # In proportion to the excess, for a few steps in all; at least one pod.
        for uid in list(pods)[len(pods) * LONGEST // (len(text) + 1) :] or list(pods)[-1:]:
            del pods[uid]
    return RenderedBound(text, count - len(pods))


def read_bound(text: str, gpus: Mapping[int, GpuUuid]) -> BoundFractions:
    """The fractions held by the containers of a node, without GPUs unknown to the node.

    `gpus` are the node's, by index.

    Raises:
        PublicationUnreadable: the text is not whole, contradicts itself, or is of a form unknown to this version.
    """
    form = decode_annotation(BOUND_ANNOTATION, text, _Form, form=FORM, longest=LONGEST)
    return {
        uid: {name: _read_fractions(fractions, gpus) for name, fractions in pod.items()}
        for uid, pod in form.pods.items()
    }


def _read_fractions(parts: Iterable[tuple[int, int, int]], gpus: Mapping[int, GpuUuid]) -> tuple[GpuFraction, ...]:
    parts = list(parts)
    if any(min(fraction) < 0 for fraction in parts):
        raise PublicationUnreadable(BOUND_ANNOTATION, "it has a number below zero")
    return tuple(
        GpuFraction(gpu=gpus[index], cores=cores, memory_bytes=memory)
        for index, cores, memory in parts
        if index in gpus
    )
