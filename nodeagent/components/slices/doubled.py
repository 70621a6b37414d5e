"""Extended resources that pods get from the device plugin and by claims, on one node; pure.

Owns the rule: a scheduler serves such a resource by claims only where the device plugin offers none of it, so that a
node with both serves pods by one and, when the device plugin's devices are all gone or unhealthy, by the other.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.model.plugin import PluginState
from nodeagent.model.slices import DeviceClass, PublishedSlices

_DRIVER: Final = "device.driver"


def selects_driver(one: DeviceClass, driver: str) -> bool:
    """Whether a class may select devices of the driver: by name, or because no selector asks for a driver."""
    asking = [text for text in one.selectors if _DRIVER in text]
    return all(f'"{driver}"' in text or f"'{driver}'" in text for text in asking)


def explain_doubled(
    classes: Iterable[DeviceClass], plugin: PluginState | None, slices: PublishedSlices | None
) -> Mapping[str, str]:
    """By resource why pods get it in two ways; empty where the node has one way."""
    if plugin is None or slices is None or not slices.devices:
        return {}
    offered: dict[str, int] = {
        resource.name: len(resource.devices) for resource in plugin.resources if resource.devices
    }
    named: dict[str, list[str]] = {}
    for one in sorted(classes, key=lambda one: one.name):
        if one.resource in offered and selects_driver(one, slices.driver):
            named.setdefault(one.resource, []).append(one.name)
    return {resource: _describe(resource, names, offered[resource], slices) for resource, names in named.items()}


def _describe(resource: str, names: list[str], offered: int, slices: PublishedSlices) -> str:
    classes = f"class{'es' if len(names) > 1 else ''} {' and '.join(names)}"
    return (
        f"the device plugin offers {offered} of {resource}, and by the {classes} the name means the {slices.devices}"
        " in slices, too: pods that ask for it get those of the device plugin alone, and those in slices as soon as the"
        " device plugin has none that is healthy"
    )
