"""What the runtime shim is called on a host and how it is asked; by itself, because others need it without a shim."""

from typing import Final

SHIM_PROGRAM: Final = "nodeagent-oci-shim"
SHIM_PLACE: Final = "shim"
"""The directory beside the program in which it looks things up."""
LEGACY_SUFFIX: Final = ".legacy"
"""Of a name under which it takes no CDI names."""
NVIDIA_NAMES: Final = tuple(f"nvidia-container-runtime{suffix}" for suffix in ("", ".cdi", LEGACY_SUFFIX))
"""What others call it in the place of NVIDIA's program."""
REQUESTS: Final = "/var/run/nvidia-container-devices"
"""Below it mounts of /dev/null name the devices that a container asks for; what its image says does not count then."""
_CDI_REQUESTS: Final = f"{REQUESTS}/cdi/"
USUAL_DIRECTORIES: Final = ("/usr/local/nvidia/toolkit", "/usr/local/bin", "/usr/bin")
"""Where they look for it."""


def place_request(name: str) -> str:
    """Where in a container /dev/null is mounted to ask for a device by its CDI name."""
    kind, _, device = name.partition("=")
    return f"{_CDI_REQUESTS}{kind}/{device}"


def read_request(place: str) -> str:
    """The CDI name that a mount at this place asks for; empty where it asks for none."""
    kind, _, device = place.removeprefix(_CDI_REQUESTS).rpartition("/")
    return f"{kind}={device}" if place.startswith(_CDI_REQUESTS) and kind and device else ""
