"""What the runtime shim looks up: devices by name, what each means in a container, and what is allowed.

Planned by the cdi component, written by the host's edge, read by a program in C that decides nothing itself.
"""

from enum import IntFlag
from typing import Literal, TypeAlias

from nodeagent.model.values import Value


class Capability(IntFlag):
    """What of the driver a container wants; the words of NVIDIA_DRIVER_CAPABILITIES."""

    COMPUTE = 0x01
    UTILITY = 0x02
    VIDEO = 0x04
    GRAPHICS = 0x08
    DISPLAY = 0x10
    NGX = 0x20
    COMPAT32 = 0x40
    ALWAYS = 0x80
    """No word: what every container with a GPU gets."""


EVERY_CAPABILITY = Capability(0x7F)


class ShimEnv(Value, frozen=True):
    """A variable that replaces another of its name."""

    wanted_by: Capability
    name: str
    value: str


class ShimNode(Value, frozen=True):
    """A device node; its numbers are looked at when a container is created, because a reboot changes them."""

    wanted_by: Capability
    path: str
    host_path: str
    permissions: str = "rwm"
    mode: int = 0
    """0 for that of the host's node."""
    gid: int = 0


class ShimMount(Value, frozen=True):
    """A bind mount."""

    wanted_by: Capability
    path: str
    host_path: str
    options: tuple[str, ...] = ()


class ShimHook(Value, frozen=True):
    """A program that the runtime starts."""

    wanted_by: Capability
    stage: str
    path: str
    args: tuple[str, ...] = ()


class ShimGroup(Value, frozen=True):
    """A group that the container's process is made a member of."""

    wanted_by: Capability
    gid: int


OnMissing: TypeAlias = Literal["refuse", "pass"]
"""What becomes of a container that asks for GPUs when there is no table that can be used."""

ShimEntry = ShimEnv | ShimNode | ShimMount | ShimHook | ShimGroup
ShimEdits = tuple[ShimEntry, ...]

ShimKind = Literal["gpu", "parent", "imex", "cdi", "extra"]


class ShimDevice(Value, frozen=True):
    """What can be asked for, under every name."""

    kind: ShimKind
    names: tuple[str, ...]
    edits: tuple[ShimEdits, ...] = ()
    """Applied in this order."""
    legacy_names: tuple[str, ...] = ()
    """Understood in mode legacy alone."""
    arch: str = ""
    brand: str = ""


class ShimPolicy(Value, frozen=True):
    """What is allowed and how requests are read."""

    mode: Literal["auto", "cdi", "legacy"] = "auto"
    accept_environment: bool = True
    """Whether a container without privilege may ask by environment."""
    accept_mounts: bool = False
    disable_require: bool = False
    ignore_imex: bool = False
    default_kind: str = "nvidia.com/gpu"
    supported: Capability = EVERY_CAPABILITY
    debug: str = ""
    """A file for messages; empty for none."""
    runtimes: tuple[str, ...] = ("runc", "crun")
    swarm: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("cdi.k8s.io/",)
    namespaces: tuple[str, ...] = ()
    """Namespaces of Kubernetes whose containers may have management devices without privilege."""


class ShimTable(Value, frozen=True):
    """All of it."""

    policy: ShimPolicy = ShimPolicy()
    cuda: str = ""
    driver: str = ""
    fresh: tuple[tuple[str, str], ...] = ()
    """Files whose first line must be this, or the table is stale."""
    devices: tuple[ShimDevice, ...] = ()
