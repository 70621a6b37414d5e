"""What is to hold a container to its part, as its pod says: read by the node that does so and by schedulers alike."""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.journal import Enforcement

_KNOWN: Final = tuple(map(str, Enforcement))
_SEVERAL: Final = (
    "and MPS holds a process to its part of one: ask for one, or give library or advise in this annotation"
)


def read_enforcement_wish(key: str, annotations: Mapping[str, str]) -> Enforcement | None:
    """What the pod chooses for itself; `None` where it leaves that to the node.

    Raises:
        RequestInvalid: there is no such thing.
    """
    chosen = annotations.get(key)
    if chosen is not None and chosen not in _KNOWN:
        raise RequestInvalid(key, f"annotation with value {chosen[:40]!r}; give one of {', '.join(_KNOWN)}")
    return None if chosen is None else Enforcement(chosen)


def tell_several(gpus: int) -> str:
    """Why MPS cannot hold a container to parts of so many GPUs."""
    return f"parts of {gpus} GPUs are asked for, {_SEVERAL}"
