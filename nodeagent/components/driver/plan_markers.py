"""Which marker files should exist under /run/nvidia/validations, with which content.

Other operands wait for `driver-ready` and read it with the shell's source command, so it must stay valid shell and
keep these names in this order. A marker is there exactly as long as it is true; one that is right is left alone.
"""

import shlex
from collections.abc import Mapping

from nodeagent.model.values import Value

DRIVER_READY = "driver-ready"
MARKERS = (DRIVER_READY,)
"""All the markers that this part answers for; it touches no others."""

_HOST_IN_CONTAINER = "/host"
_DRIVER_IN_CONTAINER = "/driver-root"
"""Where operands mount the host's root and the driver's root; their names are part of the contract."""


class DriverPlace(Value, frozen=True):
    """Where the driver is, as the host sees it."""

    driver_root: str = "/"
    dev_root: str = "/"
    is_host_driver: bool = True


class MarkerPlan(Value, frozen=True):
    """What to do so that the markers are right."""

    write: tuple[tuple[str, str], ...] = ()
    """Name and content of each."""
    remove: tuple[str, ...] = ()


def render_driver_marker(place: DriverPlace) -> str:
    """The content of `driver-ready`."""
    driver_mount = _HOST_IN_CONTAINER if place.is_host_driver else _DRIVER_IN_CONTAINER
    dev_is_driver = place.dev_root == place.driver_root
    lines = (
        ("IS_HOST_DRIVER", "true" if place.is_host_driver else "false"),
        ("NVIDIA_DRIVER_ROOT", place.driver_root),
        ("DRIVER_ROOT_CTR_PATH", driver_mount),
        ("NVIDIA_DEV_ROOT", place.dev_root),
        ("DEV_ROOT_CTR_PATH", driver_mount if dev_is_driver else _HOST_IN_CONTAINER),
    )
    # Quoting changes nothing of an ordinary path and keeps a strange one from being run by the reader's shell.
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in lines)


def plan_markers(*, ready: bool, place: DriverPlace, found: Mapping[str, str]) -> MarkerPlan:
    """Compare what should be with what is there."""
    wanted = {DRIVER_READY: render_driver_marker(place)} if ready else {}
    return MarkerPlan(
        write=tuple((name, content) for name, content in wanted.items() if found.get(name) != content),
        remove=tuple(name for name in MARKERS if name in found and name not in wanted),
    )
