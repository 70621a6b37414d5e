"""The container runtimes that are known, one file each: what they are called, where they lie, what they can do."""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.runtime import RuntimeKind
from nodeagent.model.runtimes.containerd import CONTAINERD
from nodeagent.model.runtimes.crio import CRIO
from nodeagent.model.runtimes.docker import DOCKER
from nodeagent.model.runtimes.podman import PODMAN
from nodeagent.model.runtimes.record import RuntimeRecord

RUNTIMES: Final[Mapping[RuntimeKind, RuntimeRecord]] = {each.kind: each for each in (CONTAINERD, CRIO, DOCKER, PODMAN)}
"""In the order in which they are looked for."""


def guess_kind(socket_name: str) -> RuntimeKind:
    """Whose socket this is by its name; the most usual one where the name does not tell."""
    return next((each.kind for each in RUNTIMES.values() if each.setting in socket_name), CONTAINERD.kind)


def is_adapter(endpoint: str) -> bool:
    """Whether a program listens there that stands in front of a runtime and is none itself."""
    return any(each.adapter and endpoint.endswith(each.adapter) for each in RUNTIMES.values())
