"""What the runtime shim is called on a host; by itself, because settings need it whether or not there is a shim."""

from typing import Final

SHIM_PROGRAM: Final = "nodeagent-oci-shim"
SHIM_PLACE: Final = "shim"
"""The directory beside the program in which it looks things up."""
NVIDIA_NAMES: Final = tuple(f"nvidia-container-runtime{suffix}" for suffix in ("", ".cdi", ".legacy"))
"""What others call it in the place of NVIDIA's program."""
USUAL_DIRECTORIES: Final = ("/usr/local/nvidia/toolkit", "/usr/local/bin", "/usr/bin")
"""Where they look for it."""
