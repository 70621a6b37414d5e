"""NVIDIA's DRA driver and ours: the configurations that they take, and the devices that they publish."""

from typing import Final

DRA_DRIVER: Final = ("sigs.k8s.io/dra-driver-nvidia-gpu", "0.5.0", "h1:CjUBJwemlt4kYy5AN+I7Ce4mMp9V4VKR97EBogSoDus=")
"""Its module, version and sum."""
