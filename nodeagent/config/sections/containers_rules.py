"""Rules about what containers find besides their GPUs: what the agent gives by itself is not given a second time.

Owns the rules; pure.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from nodeagent.model.mps import MEMORY_VARIABLE, PIPE_VARIABLE, THREADS_VARIABLE
from nodeagent.model.nvidia import (
    EXTRA_VARIABLES,
    GPU_NODE,
    IMEX_VARIABLE,
    LIBRARY_DIRECTORIES_VARIABLE,
    TRITON_VARIABLE,
    VENDOR,
)

if TYPE_CHECKING:
    from nodeagent.config.schema import Settings

OWN_VARIABLES: Final = frozenset(
    {
        VENDOR.visible_devices,
        IMEX_VARIABLE,
        *EXTRA_VARIABLES.values(),
        LIBRARY_DIRECTORIES_VARIABLE,
        TRITON_VARIABLE,
        PIPE_VARIABLE,
        THREADS_VARIABLE,
        MEMORY_VARIABLE,
    }
)
"""The variables that the agent sets in containers."""
_OWN_PREFIX: Final = "NODEAGENT_"


def judge_containers(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message."""
    containers = settings.containers
    for key in ("extra_devices", "extra_environment"):
        if getattr(containers, key) and not settings.cdi.enabled:
            yield f"containers.{key}", "containers are told of it by CDI specifications; set cdi.enabled: true too"
    for name in containers.extra_environment:
        if name in OWN_VARIABLES or name.startswith(_OWN_PREFIX):
            yield (
                f"containers.extra_environment.{name}",
                "the agent sets this variable itself in containers with GPUs; take it out",
            )
    places: set[str] = set()
    for index, device in enumerate(containers.extra_devices):
        path = f"containers.extra_devices[{index}]"
        if GPU_NODE.match(str(device.host)):
            yield path, f"{device.host} is given to containers together with their GPUs; take it out"
        elif GPU_NODE.match(device.place):
            yield path, f"{device.place} in containers is for the nodes of their GPUs; choose another path"
        elif device.place in places:
            yield path, f"{device.place} is the path of two devices in containers; give each its own"
        places.add(device.place)
