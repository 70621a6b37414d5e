"""The fractions of divisible classes, as annotations of the node object beside those of the driver's GPUs.

Owns the two annotations: the values of the GPUs' annotations, by class. Refuses to be read in part, as those.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.nvidia import DOMAIN
from nodeagent.rules.fractions.bound import read_bound
from nodeagent.rules.fractions.published import Published, read_published

CLASSES_ANNOTATION: Final = f"{DOMAIN}/device-fractions"
CLASSES_BOUND_ANNOTATION: Final = f"{DOMAIN}/device-fractions-bound"
_LONGEST: Final = 131072
"""Characters: all annotations of an object have twice as many."""


def render_by_class(texts: Mapping[str, str]) -> str:
    """The value of an annotation: by class the text of the GPUs' annotation; empty without any text."""
    told = {name: msgspec.Raw(text.encode()) for name, text in sorted(texts.items()) if text}
    return msgspec.json.encode(told).decode() if told else ""


def read_by_class(annotations: Mapping[str, str]) -> Mapping[str, Published]:
    """The fractions published by a node, by class.

    Raises:
        PublicationUnreadable: a text is not whole, contradicts itself, or is of a form unknown to this version.
    """
    bound = _split(annotations, CLASSES_BOUND_ANNOTATION)
    found: dict[str, Published] = {}
    for name, text in _split(annotations, CLASSES_ANNOTATION).items():
        published = read_published(text, name)
        gpus = {gpu.index: gpu.uuid for gpu in published.gpus}
        found[name] = replace(published, bound=read_bound(bound[name], gpus)) if name in bound else published
    return found


def _split(annotations: Mapping[str, str], key: str) -> Mapping[str, str]:
    text = annotations.get(key, "")
    if not text:
        return {}
    if len(text) > _LONGEST:
        raise PublicationUnreadable(key, f"it has {len(text)} characters, at most {_LONGEST} are read")
    try:
        told = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise PublicationUnreadable(key, str(error) or type(error).__name__) from error
    return {name: bytes(raw).decode() for name, raw in told.items()}
