"""The known container runtimes, a file each: their names, places and abilities."""

from collections.abc import Mapping
from typing import Final

from nodeagent.model.runtime import RuntimeKind
from nodeagent.model.runtimes.containerd import CONTAINERD
from nodeagent.model.runtimes.crio import CRIO
from nodeagent.model.runtimes.docker import DOCKER
from nodeagent.model.runtimes.podman import PODMAN
from nodeagent.model.runtimes.record import RuntimeRecord

RUNTIMES: Final[Mapping[RuntimeKind, RuntimeRecord]] = {each.kind: each for each in (CONTAINERD, CRIO, DOCKER, PODMAN)}
"""In the order of the search."""


def guess_kind(socket_name: str) -> RuntimeKind:
    """The runtime of a socket, by the socket's name; containerd where the name fits no runtime."""
    return next((each.kind for each in RUNTIMES.values() if each.setting in socket_name), CONTAINERD.kind)


def is_adapter(endpoint: str) -> bool:
    """Whether a socket belongs to an adapter in front of a runtime, and to no runtime itself."""
    return any(each.adapter and endpoint.endswith(each.adapter) for each in RUNTIMES.values())
