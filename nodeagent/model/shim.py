"""The runtime shim's table: devices by name, the edits of each device in a container, and the policy.

Planned by the cdi component, written by the host's edge, read by a program in C without decisions of its own.
"""

from enum import IntFlag
from typing import Literal, TypeAlias

from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.values import Value


class Capability(IntFlag):
    """The driver capabilities of a container; the words of `NVIDIA_DRIVER_CAPABILITIES`."""

    COMPUTE = 0x01
    UTILITY = 0x02
    VIDEO = 0x04
    GRAPHICS = 0x08
    DISPLAY = 0x10
    NGX = 0x20
    COMPAT32 = 0x40
    ALWAYS = 0x80
    """No word: for every container with a GPU."""


EVERY_CAPABILITY = Capability(0x7F)


class ShimEnv(Value, frozen=True):
    """A variable, in place of any variable of the same name."""

    wanted_by: Capability
    name: str
    value: str


class ShimNode(Value, frozen=True):
    """A device node; its numbers are read when a container is created, because a reboot changes the numbers."""

    wanted_by: Capability
    path: str
    host_path: str
    permissions: str = "rwm"
    mode: int = 0
    """0 for the mode of the host's node."""
    gid: int = 0


class ShimMount(Value, frozen=True):
    """A bind mount."""

    wanted_by: Capability
    path: str
    host_path: str
    options: tuple[str, ...] = ()


class ShimHook(Value, frozen=True):
    """A program for the runtime to start."""

    wanted_by: Capability
    stage: str
    path: str
    args: tuple[str, ...] = ()


class ShimGroup(Value, frozen=True):
    """A supplementary group of the container's process."""

    wanted_by: Capability
    gid: int


OnMissing: TypeAlias = Literal["refuse", "pass"]
"""The fate of a container that asks for GPUs when no table can be used."""

ShimEntry = ShimEnv | ShimNode | ShimMount | ShimHook | ShimGroup
ShimEdits = tuple[ShimEntry, ...]

ShimKind = Literal["gpu", "parent", "imex", "cdi", "extra"]


class ShimDevice(Value, frozen=True):
    """A device under all of its names."""

    kind: ShimKind
    names: tuple[str, ...]
    edits: tuple[ShimEdits, ...] = ()
    """Applied in the given order."""
    legacy_names: tuple[str, ...] = ()
    """Understood in mode legacy alone."""
    arch: str = ""
    brand: str = ""


class ShimPolicy(Value, frozen=True):
    """The rules for reading requests, and for allowing them."""

    mode: Literal["auto", "cdi", "legacy"] = "auto"
    accept_environment: bool = True
    """Whether a container without privilege may ask by environment."""
    accept_mounts: bool = False
    disable_require: bool = False
    ignore_imex: bool = False
    default_kind: str = f"{DOMAIN}/gpu"
    supported: Capability = EVERY_CAPABILITY
    debug: str = ""
    """A file for messages; empty for no file."""
    runtimes: tuple[str, ...] = ("runc", "crun")
    swarm: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("cdi.k8s.io/",)
    namespaces: tuple[str, ...] = ()
    """Namespaces of Kubernetes whose containers may have management devices without privilege."""


class ShimTable(Value, frozen=True):
    """The shim's whole table."""

    policy: ShimPolicy = ShimPolicy()
    cuda: str = ""
    driver: str = ""
    fresh: tuple[tuple[str, str], ...] = ()
    """Files with their expected first lines; any other first line makes the table stale."""
    devices: tuple[ShimDevice, ...] = ()
