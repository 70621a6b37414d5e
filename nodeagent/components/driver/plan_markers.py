"""The marker files under `/run/nvidia/validations`, and their content.

Other operands wait for `driver-ready` and read the file with the shell's source command, so the content must stay valid
shell with the same names in the same order. A marker exists exactly while its statement is true.
"""

import shlex
from collections.abc import Mapping

from nodeagent.model.nvidia import DEV_ROOT_VARIABLE, DRIVER_ROOT_VARIABLE
from nodeagent.model.values import Value

DRIVER_READY = "driver-ready"
WORKLOAD_MARKERS = ("plugin-ready", "cuda-ready")
"""The markers of a node on which a pod got a GPU from the device plugin, and computed."""


def list_markers(*, validates: bool) -> tuple[str, ...]:
    """The markers that this part answers for, dependants first; it touches no others.

    Args:
        validates: Whether pods with a GPU validate the node.
    """
    return (*(WORKLOAD_MARKERS if validates else ()), DRIVER_READY)


_HOST_IN_CONTAINER = "/host"
_DRIVER_IN_CONTAINER = "/driver-root"
"""Where operands mount the host's root and the driver's root; their names are part of the contract."""


class DriverPlace(Value, frozen=True):
    """The driver's place, as the host sees it."""

    driver_root: str = "/"
    dev_root: str = "/"
    is_host_driver: bool = True


class MarkerPlan(Value, frozen=True):
    """The steps that make the markers correct."""

    write: tuple[tuple[str, str], ...] = ()
    """Name and content of each."""
    remove: tuple[str, ...] = ()


def render_driver_marker(place: DriverPlace) -> str:
    """The content of `driver-ready`."""
    driver_mount = _HOST_IN_CONTAINER if place.is_host_driver else _DRIVER_IN_CONTAINER
    dev_is_driver = place.dev_root == place.driver_root
    lines = (
        ("IS_HOST_DRIVER", "true" if place.is_host_driver else "false"),
        (DRIVER_ROOT_VARIABLE, place.driver_root),
        ("DRIVER_ROOT_CTR_PATH", driver_mount),
        (DEV_ROOT_VARIABLE, place.dev_root),
        ("DEV_ROOT_CTR_PATH", driver_mount if dev_is_driver else _HOST_IN_CONTAINER),
    )
    # Quoting changes nothing of an ordinary path and keeps a strange one from being run by the reader's shell.
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in lines)


def plan_markers(
    *, ready: bool, place: DriverPlace, found: Mapping[str, str], validates: bool = False, validated: bool = False
) -> MarkerPlan:
    """Compare wanted markers with present markers.

    Args:
        ready: Whether the driver works.
        place: The driver's place.
        found: The present markers with their content.
        validates: Whether pods with a GPU validate the node.
        validated: Whether the last pod passed.
    """
    wanted = {DRIVER_READY: render_driver_marker(place)} if ready else {}
    if ready and validated:
        wanted |= dict.fromkeys(reversed(WORKLOAD_MARKERS), "")
    return MarkerPlan(
        write=tuple((name, content) for name, content in wanted.items() if found.get(name) != content),
        remove=tuple(name for name in list_markers(validates=validates) if name in found and name not in wanted),
    )
