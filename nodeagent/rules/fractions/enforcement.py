"""The enforcement of a container's fraction as chosen by the pod, read by the enforcing node and by schedulers."""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.journal import Enforcement

_KNOWN: Final = tuple(map(str, Enforcement))
_SEVERAL: Final = (
    "and MPS holds a process to its part of one: ask for one, or give library or advise in this annotation"
)


def read_enforcement_choice(key: str, annotations: Mapping[str, str]) -> Enforcement | None:
    """The pod's own choice; `None` where the pod leaves the choice to the node.

    Raises:
        RequestInvalid: there is no such enforcement.
    """
    chosen = annotations.get(key)
    if chosen is not None and chosen not in _KNOWN:
        raise RequestInvalid(key, f"annotation with value {chosen[:40]!r}; give one of {', '.join(_KNOWN)}")
    return None if chosen is None else Enforcement(chosen)


def explain_several(gpus: int) -> str:
    """Why MPS cannot hold a container to fractions of so many GPUs."""
    return f"parts of {gpus} GPUs are asked for, {_SEVERAL}"
