"""Rules between classes of devices: a device node belongs to one class, and a resource is offered once.

Owns the rules; pure.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Final

from nodeagent.config.globs import overlap
from nodeagent.config.sections.devices import DeviceClass, name_class_resources

if TYPE_CHECKING:
    from nodeagent.config.schema import Settings

_GPU_NODES: Final = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-caps/*")
"""The device nodes of NVIDIA's GPUs, given out only by the allocation modes of the GPUs."""


def judge_devices(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Every breach: path and message."""
    classes = settings.devices.classes
    taken = _list_gpu_resources(settings)
    for index, one in enumerate(classes):
        for name in _list_resources(one):
            if (other := taken.get(name)) is not None:
                yield f"devices.classes[{index}].resource", f"{name} is already offered by {other}; name it otherwise"
        if one.divisible and not settings.cdi.enabled:
            message = "containers are told their parts by CDI specifications; set cdi.enabled: true too"
            yield f"devices.classes[{index}].divisible", message
        for key in ("nodes", "companion_nodes"):
            for place, pattern in enumerate(getattr(one, key)):
                if gpu := next((node for node in _GPU_NODES if overlap(pattern, node)), None):
                    message = f"{pattern} also means {gpu}, and GPUs of NVIDIA are given by the agent itself; narrow it"
                    yield f"devices.classes[{index}].{key}[{place}]", message
    for (_, earlier), (index, later) in combinations(enumerate(classes), 2):
        yield from _judge_pair(earlier, later, index)


def _judge_pair(one: DeviceClass, other: DeviceClass, index: int) -> Iterator[tuple[str, str]]:
    path = f"devices.classes[{index}]"
    for what in ("label", "condition"):
        word = getattr(other, what)
        if word is not None and word == getattr(one, what):
            yield f"{path}.{what}", f"{word} is the {what} of {one.resource} and of {other.resource}; give each its own"
    if doubled := next((name for name in _list_resources(other) if name in _list_resources(one)), None):
        yield f"{path}.resource", f"{doubled} is the resource of two classes; give each its own"
    elif not _are_apart(one, other):
        for place, pattern in enumerate(other.nodes):
            if theirs := next((each for each in one.nodes if overlap(pattern, each)), None):
                message = (
                    f"{pattern} of {other.resource} and {theirs} of {one.resource} can mean the same node; narrow one"
                    " of them"
                )
                yield f"{path}.nodes[{place}]", message


def _are_apart(one: DeviceClass, other: DeviceClass) -> bool:
    """Whether what is said of PCI functions or USB devices, or the class in sysfs, keeps two classes apart."""
    vendors = (one.pci_vendor, other.pci_vendor)
    if None not in vendors and (one.pci_vendor or "").lower() != (other.pci_vendor or "").lower():
        return True
    for key in ("pci_devices", "pci_drivers", "amd_partitions", "usb_serials"):
        if _differ(getattr(one, key), getattr(other, key)):
            return True
    usbs = ((one.usb_vendor, one.usb_product), (other.usb_vendor, other.usb_product))
    if any(left and right and left.lower() != right.lower() for left, right in zip(*usbs, strict=True)):
        return True
    kinds = ((one.pci_class or "").lower(), (other.pci_class or "").lower())
    if all(kinds) and not (kinds[0].startswith(kinds[1]) or kinds[1].startswith(kinds[0])):
        return True
    return bool(one.sysfs_class and other.sysfs_class and one.sysfs_class != other.sysfs_class)


def _list_resources(one: DeviceClass) -> tuple[str, ...]:
    """The resources of a class: those of its parts too."""
    resource = one.resource or ""
    return (resource, *name_class_resources(resource)) if one.divisible else (resource,)


def _differ(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether both name values, and none in common."""
    return bool(some and others) and not {each.lower() for each in some} & {each.lower() for each in others}


def _list_gpu_resources(settings: "Settings") -> dict[str, str]:
    """Resources offered for GPUs, and the setting behind each."""
    fractions = settings.fractions
    found = {f"{settings.device_plugin.resource_prefix}/gpu": "GPUs (`device_plugin.resource_prefix`)"}
    if fractions.enabled:
        keys = ("core_resource", "memory_resource") if fractions.profile == "tencent" else ("share_resource",)
        found |= {getattr(fractions, key): f"parts of GPUs (`fractions.{key}`)" for key in keys}
    for pattern in (*settings.resources.gpus, *settings.resources.mig):
        name = pattern.name if "/" in pattern.name else f"{settings.device_plugin.resource_prefix}/{pattern.name}"
        found[name] = "GPUs (`resources`)"
    return found
