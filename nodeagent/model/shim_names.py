"""The runtime shim's names on a host, and how containers ask for devices; importable without the shim itself."""

from typing import Final

from nodeagent.model.nvidia import CONTAINER_DEVICES, RUNTIME_PROGRAM, TOOLKIT_DIRECTORY

SHIM_PROGRAM: Final = "nodeagent-oci-shim"
SHIM_PLACE: Final = "shim"
"""The directory of the shim's table, beside the program."""
LEGACY_SUFFIX: Final = ".legacy"
"""Suffix of a name under which the shim takes no CDI names."""
RUNTIME_NAMES: Final = tuple(f"{RUNTIME_PROGRAM}{suffix}" for suffix in ("", ".cdi", LEGACY_SUFFIX))
"""The shim's names in place of the vendor's program."""
REQUESTS: Final = CONTAINER_DEVICES
"""Mounts of /dev/null below name the devices of a container; its image's environment does not count then."""
_CDI_REQUESTS: Final = f"{REQUESTS}/cdi/"
USUAL_DIRECTORIES: Final = (TOOLKIT_DIRECTORY, "/usr/local/bin", "/usr/bin")
"""The usual directories of the vendor's program."""


def place_request(name: str) -> str:
    """The mount point of /dev/null in a container for asking for a device by its CDI name."""
    kind, _, device = name.partition("=")
    return f"{_CDI_REQUESTS}{kind}/{device}"


def read_request(place: str) -> str:
    """The CDI name in a mount's path; empty where the mount is no request."""
    kind, _, device = place.removeprefix(_CDI_REQUESTS).rpartition("/")
    return f"{kind}={device}" if place.startswith(_CDI_REQUESTS) and kind and device else ""
